"""`apportion explain`: which instructions moved a kernel's answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from apportion.advise.explain import Explanation, Line
from apportion.advise.explain import explain as explain_share
from apportion.advise.inspect import inspect
from apportion.advise.predictor import DEFAULT_PAIR, is_timed
from apportion.advise.queries import Size, size_of
from apportion.cli.building import USUAL, Building
from apportion.cli.inspect import print_assumed
from apportion.cli.show import note, print_json, print_table
from apportion.errors import InvalidSetting
from apportion.program.siblings import own_lines
from apportion.program.source import Source
from apportion.settings import replace_file

_BAR = 24


def explain(
    *sources: Path,
    local_size: Annotated[str, Parameter(name=["--local-size", "-l"])],
    bytes: int,
    kernel: str | None = None,
    global_size: Annotated[str | None, Parameter(name=["--global-size", "-n"])] = None,
    arg: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    pair: str = DEFAULT_PAIR,
    model: str | None = None,
    lines: int = 20,
    every: Annotated[bool, Parameter(negative="")] = False,
    ir: Annotated[bool, Parameter(negative="")] = False,
    picture: Path | None = None,
    building: Building = USUAL,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Show what moved the share that `apportion predict` gives: instructions, inputs, the program's size.

    Args:
        sources: Files of OpenCL C (.cl), LLVM IR (.ll) or bitcode (.bc).
        local_size: The work-items of a work-group, such as 64 or 16x16.
        bytes: How many bytes the launch moves between the host and the device.
        kernel: The kernel's name, if the source has several.
        global_size: All work-items, such as 4096 or 1024x1024. Only models that predict times need it.
        arg: An argument of the kernel, such as `n=1024` or `x=float32[N]`, written as for `apportion run`.
            Models that predict times (xeon-h200) use them. Arguments that you leave out are assumed.
        pair: The devices that the prediction is for: cgo17-nvidia, cgo17-amd, or another pair that has a
            model.
        model: A model to ask instead of the pair's own, by its name or its folder. `apportion models` lists
            them.
        lines: How many lines of the source (or instructions) to show, beginning with the one that moved the
            answer most.
        every: Show every instruction of the LLVM IR, in the program's order.
        ir: Show instructions of the LLVM IR instead of lines of the source.
        picture: Draw the program graph to this SVG file; the colour of an instruction shows how far it moved
            the answer.
        json: Print one line of JSON for each kernel.
    """
    group = size_of(local_size, "local_size")
    whole = None if global_size is None else size_of(global_size, "global_size")
    if model is None and is_timed(pair, "numpy"):
        for path in sources:
            _explain_times(building.source(path), kernel, group, whole, arg, pair, lines, json)
        return
    for number, source in enumerate(sources):
        found = explain_share(
            building.source(source),
            local_size=group,
            bytes=bytes,
            kernel=kernel,
            global_size=whole,
            pair=pair,
            model=model,
        )
        for warning in found.warnings:
            note(f"Warning: {warning}.")
        if json:
            print_json(found.as_json())
        else:
            _show(found)
            if found.source and not (ir or every):
                _show_lines(found, lines)
            else:
                _show_instructions(found, found.lines if every else found.strongest[:lines])
        if picture is not None:
            _draw(found, picture if number == 0 else picture.with_stem(f"{picture.stem}-{number + 1}"))


def _explain_times(
    source: Source,
    kernel: str | None,
    group: Size,
    whole: Size | None,
    arguments: tuple[str, ...],
    pair: str,
    most_lines: int,
    json: bool,
) -> None:
    """What each line takes on the devices of a pair whose times were learned."""
    if whole is None:
        raise InvalidSetting(f"The models of {pair} know the range of a launch: give its --global-size")
    found = inspect(source, global_size=whole, local_size=group, kernel=kernel, arguments=arguments)
    print_assumed(found)
    devices = sorted(
        {where for line in found.lines for where in line.seconds if where.startswith(f"{pair}/")}
    )
    text = own_lines(str(source.text), source.name)
    ranked = sorted(found.lines, key=lambda line: -max((line.seconds[each] for each in devices), default=0.0))
    rows = [
        (
            line.line or "", *(f"{1e3 * line.seconds[each]:.4g}" for each in devices),
            text[line.line - 1].strip() if 0 < line.line <= len(text) else "(no line of the source)",
        )
        for line in ranked[:most_lines]
    ]  # fmt: skip
    if json:
        assumed = [f"{name}={word}" for name, word in found.arguments.items() if name not in found.given]
        print_json(
            {
                "kernel": found.kernel, "pair": pair, "assumed": assumed,
                "lines": [line.as_json() for line in ranked],
            }
        )  # fmt: skip
        return
    names = [f"{each.partition('/')[2]}, ms" for each in devices]
    print_table(("line", *names, "source"), rows, title=f"{found.kernel}, {pair}", right=("line", *names))
    note("Milliseconds of each line's operations and bytes, if nothing overlaps.")


def _show(found: Explanation) -> None:
    rows = [
        ("before looking", _signed(found.base)),
        *((f"input: {name}", _signed(value)) for name, value in _ranked(found.inputs)),
        *((f"known launches, {name}", _signed(value)) for name, value in _ranked(found.nearest_launches)),
        *((f"program: {name}", _signed(value)) for name, value in _ranked(found.whole)),
        *((f"not there: {name}", _signed(value)) for name, value in _ranked(found.absent)[:5]),
    ]
    rest = sum(value for _, value in _ranked(found.absent)[5:])
    if rest:
        rows.append(("not there: the rest", _signed(rest)))
    rows.append(("instructions", _signed(sum(line.added for line in found.lines))))
    rows.append(("CPU share", f"{found.share:.1f}"))
    print_table(("what", "percent"), rows, title=f"{found.name}, {found.pair}", right=("percent",))


def _show_lines(found: Explanation, most_lines: int) -> None:
    lines = found.source_lines
    most = max((abs(added) for _, _, added in lines), default=0.0) or 1.0
    shown = [
        (_signed(added), _bar(added / most), number or "", text)
        for number, text, added in lines[:most_lines]
    ]  # fmt: skip
    print_table(("percent", "", "line", "source"), shown, right=("percent", "line"))
    if len(lines) > len(shown):
        note(f"{len(lines) - len(shown)} more lines: --lines shows more; --ir shows instructions.")


def _show_instructions(found: Explanation, lines: tuple[Line, ...] | list[Line]) -> None:
    most = max((abs(line.added) for line in found.lines), default=0.0) or 1.0
    shown = [(_signed(line.added), _bar(line.added / most), line.function, line.text) for line in lines]
    left = len(found.lines) - len(shown)
    print_table(("percent", "", "function", "instruction"), shown, right=("percent",))
    if left:
        note(f"{left} more instructions: --lines shows more, --every all of them in their order.")


def _ranked(parts: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(parts.items(), key=lambda item: -abs(item[1]))


def _signed(value: float) -> str:
    return f"{value:+.2f}"


def _bar(part: float) -> Text:
    return Text("█" * max(1, round(_BAR * abs(part))), style="red" if part > 0 else "blue")


def _draw(found: Explanation, path: Path) -> None:
    replace_file(path, found.picture())
    note(f"The picture is {path}: red instructions speak for the CPU, blue ones for the GPU")
