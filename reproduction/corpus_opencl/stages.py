"""What becomes of a kernel of somebody else's: compiled, read, predicted, split, run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from apportion.advise.predictor import predict
from apportion.coexecution.sharing import Together
from apportion.errors import ApportionError, CompileError, OutOfBoundsRead, OutOfBoundsWrite
from apportion.measure.counters.bounds_check import check_launch
from apportion.program.buildfile import BuildOptions
from apportion.program.compile import CompileOptions, ir_of, kernels_of
from apportion.program.kernel.access import KernelAccess, accesses_of
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.recover import guessed
from apportion.program.kernel.signature import Signature, signatures_of
from apportion.program.llvm import GraphOptions, graph_of_ir
from apportion.program.source import Source
from apportion.runtime.arguments import arguments_for
from apportion.runtime.backend import Backend
from apportion.runtime.default_arguments import outside
from reproduction.corpus_opencl.packages import Package

PAIR = "xeon-h200"
ROUTES = ("as given", "with the package's options", "with guesses")
SECONDS = 60.0
"For compiling a file on one route."
_SPANS = {1: NDRange((4096,), (64,)), 2: NDRange((64, 64), (8, 8)), 3: NDRange((16, 16, 16), (4, 4, 4))}
_QUERY = re.compile(r"get_(?:global|local|group)_(?:id|size)\s*\(\s*([0-2])\s*\)")
_CLASSES = {
    "atomics order its work-groups, or their results are used": r"atomic \w+ orders|result of atomic"
    r"|from an atomic operation|updated by atomics and also",
    "its writes could not be traced": r"could not be traced",
    "a header is missing": r"file not found|may not be included",
    "a macro or type is missing": r"a macro is missing|is a macro of|undeclared identifier|unknown type"
    r"|implicit declaration|#error|type specifier missing|\.cl:\d+:\d+:$|is only for",
    "types do not fit each other under these options": r"incompatible type|is ambiguous|changes address space"
    r"|has greater rank|is not allowed",
    "it is a template for a text generator": r"expected|extraneous|invalid token|stray",
    "an extension is missing": r"extension|not supported|unsupported|requires",
    "an argument cannot be passed": r"which no host passes|whose size is not known",
    "it reaches outside its made-up arrays": r"work-item \d+ (?:reads|writes)|wrote out of bounds",
    "the driver refuses it": r"refuses the kernel|could not run",
    "it takes too long": r"took longer|was stopped after|executed more than|did not finish",
    "the driver died": r"worker died",
    "devices disagree": r"differ|disagree|conflict|of different kinds",
    "its work cannot be shared": r"cannot be shared|NotSplittable|one work-group",
}


@dataclass(frozen=True)
class KernelRow:
    """One kernel, or a file that did not compile, and how far it came."""

    package: str
    file: str
    kernel: str = ""
    route: str = ""
    "One of `ROUTES`; empty for what compiles in none."
    graph: bool = False
    predicted: bool = False
    unsaid: int = 0
    "Integers passed by value that the prediction rests on without saying so."
    splittable: bool = False
    ran: bool | None = None
    "None for what was not asked to run."
    equal: bool | None = None
    unread: int = 0
    "Kernels that a file which compiles on no route seems to hold."
    reason: str = ""
    "Of the first stage that failed."
    not_given: str = ""
    "Why the file does not compile as it is."

    @property
    def found_unshareable(self) -> bool:
        """Whether its first launch was compared with one device's, and sharing given up: nothing went wrong,
        and `apportion run` takes one device from then on."""
        return self.ran is False and "cannot be shared between devices" in self.reason

    @property
    def failure(self) -> str:
        """The class of the reason."""
        return class_of(self.reason)


def class_of(reason: str) -> str:
    """What kind of failure a reason tells; nothing for no reason."""
    if not reason:
        return ""
    return next((name for name, words in _CLASSES.items() if re.search(words, reason)), "something else")


def rows_of(package: Package, path: Path) -> list[KernelRow]:
    """Everything that can be said without running: a row for each kernel, or one for the file."""
    file = str(path.relative_to(package.root))
    source, route, reasons = _compiled(package, path)
    given = reasons.get(ROUTES[0], "")
    if source is None:
        reason = next((reasons[route] for route in (ROUTES[1], ROUTES[0]) if route in reasons), "")
        return [
            KernelRow(package.name, file, unread=package.kernels_in(path), reason=reason, not_given=given)
        ]
    try:
        ir = ir_of(source, CompileOptions(seconds=SECONDS))
        signatures, accesses = signatures_of(ir, str(source.text)), accesses_of(ir, str(source.text))
    except ApportionError as error:
        return [
            KernelRow(
                package.name, file, unread=package.kernels_in(path), reason=_first(error), not_given=given
            )
        ]
    own = set(re.findall(r"\w+", path.read_text("utf-8", "replace")))
    mine = own & set(signatures) or set(signatures)  # without those of files that are put before it
    return [
        _described(
            KernelRow(package.name, file, name, route, not_given=given), source, ir, signature, accesses[name]
        )
        for name, signature in signatures.items()
        if name in mine
    ]


def ran(package: Package, row: KernelRow, backend: Backend) -> KernelRow:
    """The row with what came of running it: half on each of two devices, compared with one of them."""
    source, _, _ = _compiled(package, package.root / row.file)
    assert source is not None
    try:
        with Together(source, row.kernel, backend=backend, policy=0.5, trust_source=True) as kernel:
            span = _span(kernel.signature, str(source.text))
            arguments = arguments_for(kernel.signature, kernel.access, span)
            if outside(kernel.signature, kernel.access, arguments.case) is not None:
                check_launch(source, row.kernel, arguments, whole=False)
            execution = kernel(
                *arguments.values.values(), global_size=span.global_size, local_size=span.local_size
            )
    except (OutOfBoundsRead, OutOfBoundsWrite) as error:
        return replace(row, ran=False, reason=_first(error))
    except ApportionError as error:
        return replace(row, ran=False, equal=False if "differ" in str(error) else None, reason=_first(error))
    return replace(row, ran=True, equal=execution.verified)


def _compiled(package: Package, path: Path) -> tuple[Source | None, str, dict[str, str]]:
    """The source by the first route on which it compiles, and which one; and why those before it fail."""
    reasons: dict[str, str] = {}
    for route, build in _ways(package, path):
        try:
            source = Source.read(path, "opencl", **({} if build is None else {"build": build}))
            if route == ROUTES[2]:
                source, _ = guessed(source, path)
            if kernels_of(ir_of(source, CompileOptions(seconds=SECONDS))):
                return source, route, reasons
            reasons[route] = "conditions leave out every kernel: a macro is missing"
        except CompileError as error:
            reasons[route] = _first(error)
        except ApportionError as error:
            reasons[route] = _first(error)
            break  # what takes too long does so with guesses, too
    return None, "", reasons


def _ways(package: Package, path: Path) -> Iterator[tuple[str, BuildOptions | None]]:
    """Every route, and the options of it: none for what is compiled as it is."""
    yield ROUTES[0], None
    builds = list(package.builds(path))
    if builds != [BuildOptions()]:
        yield from ((ROUTES[1], build) for build in builds)
    yield ROUTES[2], builds[0]


def _described(
    row: KernelRow, source: Source, ir: str, signature: Signature, access: KernelAccess
) -> KernelRow:
    try:
        graph_of_ir(ir, name=row.kernel, options=GraphOptions(function=row.kernel))
        row = replace(row, graph=True)
        span = _span(signature, str(source.text))
        found = predict(
            source, local_size=span.local_size, bytes=1 << 20, kernel=row.kernel,
            global_size=span.global_size, pair=PAIR,
        )  # fmt: skip
    except ApportionError as error:
        return replace(row, reason=_first(error))
    numbers = [
        argument.name for argument in signature.arguments
        if not argument.is_pointer and "int" in (argument.scalar_type or "") and argument.components == 1
    ]  # fmt: skip
    said = {each.partition("=")[0] for each in found.assumed}
    return replace(
        row, predicted=True, unsaid=len(set(numbers) - said), splittable=not access.obstacles,
        reason="; ".join(access.obstacles),
    )  # fmt: skip


def _span(signature: Signature, text: str) -> NDRange:
    dimensions = 1 + max((int(found) for found in _QUERY.findall(text)), default=0)
    if signature.required_local_size is None:
        return _SPANS[dimensions]
    local = signature.required_local_size[:dimensions]
    return NDRange(tuple(8 * size for size in local), local)


def _first(error: ApportionError) -> str:
    return " ".join(str(error).split())[:300]
