"""LLVM IR of an OpenCL kernel → IR that counts what it does, for this machine.

Code is cut into segments: stretches that are run as a whole. Each begins with a call that says it was
entered; what a segment is made of is known beforehand and multiplied out afterwards. Each access to memory
and each conditional branch has a call of its own. The IR is edited as text, line by line; the calls have no
result, so the numbers of values without a name stay what they are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from apportion.errors import MalformedIR, UnknownName
from apportion.program.kernel.features import GROUPS, family_of
from apportion.program.kernel.instructions import CALLEE, DEFINE, IRFunction, IRModule, read_module, split_top
from apportion.program.kernel.source_lines import SourceLines

BARRIERS = re.compile(r"_Z\d+(?:(?:work_group_|sub_group_)?barrierj|wait_group_events)")
_DECLARE = re.compile(r'^declare\b.*?@([-\w$.]+|"[^"]*")\(')
_LABEL = re.compile(r'^(?:[-\w$.]+|"[^"]*"):')
_INSTRUCTION = re.compile(r'^\s+(?:(%(?:[-\w$.]+|"[^"]*")) = )?(?:(?:tail|musttail|notail) )?(\w+)(.*)$')
_MARKER = re.compile(r"@llvm\.(?:lifetime|dbg|assume|invariant|experimental\.noalias)")
_MEMORY = re.compile(r"@llvm\.mem(cpy|move|set)\b")
_GLOBAL = re.compile(
    r"^(?P<name>@(?:[-\w$.]+|\"[^\"]*\")) = (?P<linkage>(?:internal|private|common|dso_local|unnamed_addr|"
    r"local_unnamed_addr|linkonce_odr|weak_odr) ?)*"
    r"(?:addrspace\((?P<space>\d+)\) )?(?P<kind>global|constant) (?P<rest>.*)$"
)
_CONVENTION = re.compile(r"\b(?:spir_kernel|spir_func|dso_local|byval\([^)]*\)) ")
"What the target does not know; a structure by value becomes a pointer to it."
_ORDERING = re.compile(
    r' (?:syncscope\("[^"]*"\) )?(?:unordered|monotonic|acquire|release|acq_rel|seq_cst)\b.*$'
)
_OPAQUE = re.compile(r'target\("spirv\.(?:Image|Sampler|Event)"[^)]*\)')
"Images, samplers and events, whose address is all that a kernel hands on."
_LANES = re.compile(r"<(\d+) x ")
_POINTER = re.compile(r"^(ptr(?: addrspace\((\d+)\))?) (.*)$")
_ENTRY = "__apportion_entry"
SITE = "__apportion_site"
"A variable that holds the line of the source whose access is made."
_ROOM = 512
"Bytes behind each variable of the module: what overruns one of them must not land in the next."
_NODE = re.compile(r"^!(\d+) = (.*)$")
_DEBUG = re.compile(r"!DI[A-Z]\w*\(")
_NUMBERS = re.compile(r"!(\d+)")
_ATTACHMENT = re.compile(r",? ![\w.]+ !(\d+)")
FAMILIES = ("int", "fp", "mem", "control", "call", "other")
_FAMILY_OF = {
    **dict.fromkeys((*GROUPS["integer"], "icmp"), "int"),
    **dict.fromkeys((*GROUPS["float"], "fcmp"), "fp"),
    **dict.fromkeys(GROUPS["memory"], "mem"),
    **dict.fromkeys(("br", "switch", "ret", "unreachable"), "control"),
}
SLOT = 128
"Bytes for an argument: the longest vector there is."
_SCALAR_RESULT = frozenset(
    ("extractelement", "store", "br", "switch", "ret", "unreachable", "fence", "alloca")
)


@dataclass(frozen=True)
class Segment:
    """A stretch of code that is run as a whole."""

    opcodes: tuple[tuple[str, int], ...]
    widths: tuple[tuple[int, int], ...]
    "Lanes of a result → how many instructions have that many; 1 for those without a result."
    families: tuple[tuple[str, int], ...]
    "One of `FAMILIES` → how many instructions belong to it."

    @property
    def size(self) -> int:
        """Its instructions."""
        return sum(count for _, count in self.opcodes)


@dataclass(frozen=True)
class GlobalMemory:
    """A variable of the module: local memory that a kernel declares, or constants."""

    name: str
    space: int
    size: int


@dataclass(frozen=True)
class Instrumented:
    """A kernel that counts."""

    ir: str
    entry: str
    "A function that takes the address of the arguments, `SLOT` bytes each."
    segments: tuple[Segment, ...]
    branches: int
    barrier: bool
    "Whether work-items must wait for each other."
    missing: tuple[str, ...]
    "Functions that are declared and called, and defined neither here nor by the native part."
    variables: tuple[GlobalMemory, ...]
    parameter_types: tuple[str, ...]


def instrumented(
    ir: str,
    kernel: str,
    triple: str,
    layout: str,
    provided: Sequence[str],
    *,
    lines: SourceLines | None = None,
) -> Instrumented:
    """The kernel and what it calls, counting, for a target.

    Args:
        provided: functions that need no definition.
        lines: where instructions come from; before each access the number of its line is noted in `SITE`.

    Raises:
        UnknownName: the module has no such kernel.
        MalformedIR: what is printed there cannot be taken apart.
    """
    ir = _OPAQUE.sub("ptr", ir)
    module = read_module(ir)
    if kernel not in module.functions:
        raise UnknownName("kernel", kernel, [function.name for function in module.kernels])
    reached = _reached(module, kernel)
    called = {name for function in reached for name in _called(module.functions[function])}
    weaver = _Weaver(module, frozenset(reached), lines)
    types: list[str] = []
    head: list[str] = []
    body: list[str] = []
    tail: list[str] = []
    declares: dict[str, str] = {}
    variables: list[GlobalMemory] = []
    printed_lines = iter(ir.splitlines())
    for line in printed_lines:
        if match := DEFINE.match(line):
            name = match[1].strip('"')
            text = [line, *_until_end(printed_lines)]
            if name in reached:
                body += weaver.function(text)
        elif match := _DECLARE.match(line):
            declares[match[1].strip('"')] = line
        elif line.startswith(("target ", "source_filename", ";")):
            continue
        elif line.startswith("%"):
            types.append(line)
        elif match := _GLOBAL.match(line):
            head.append(_exported(match))
            variables.append(_variable(module, match))
        else:
            tail.append(line)
    needed = {name: text for name, text in declares.items() if name in called}
    missing = sorted(
        name
        for name in needed
        if not name.startswith("llvm.") and name not in provided and not BARRIERS.match(name)
    )
    function = module.functions[kernel]
    parts = [
        f'target datalayout = "{layout}"',
        f'target triple = "{triple}"',
        *types,
        *head,
        *body,
        *(line for name, line in needed.items() if not BARRIERS.match(name)),
        *weaver.declarations(),
        *_entry(function),
        *tail,
    ]
    if lines is not None:
        parts = _without_debug([*parts, f"@{SITE} = global i32 0"])
    printed = (
        "\n".join(_CONVENTION.sub("", line) if not line.startswith("!") else line for line in parts) + "\n"
    )
    return Instrumented(
        printed, _ENTRY, tuple(weaver.segments), weaver.branches, weaver.barrier, tuple(missing),
        tuple(variables), function.parameter_types,
    )  # fmt: skip


def _until_end(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if line.startswith("}"):
            return
    raise MalformedIR("A function without an end")


def _called(function: IRFunction) -> set[str]:
    """Every function that is named in a body: called, or handed on."""
    return {
        name.strip('"') for i in function.instructions for name in re.findall(r'@([-\w$.]+|"[^"]*")', i.text)
    }


def _reached(module: IRModule, kernel: str) -> set[str]:
    found, pending = {kernel}, [kernel]
    while pending:
        for name in _called(module.functions[pending.pop()]):
            if name in module.functions and name not in found:
                found.add(name)
                pending.append(name)
    return found


def _exported(match: re.Match[str]) -> str:
    """A variable that can be found by its name from outside, with room behind it that belongs to nothing."""
    space = f"addrspace({match['space']}) " if match["space"] else ""
    kind = _first_type(match["rest"])
    value, comma, more = _initial(match["rest"][len(kind) :].strip())
    room = f"[{_ROOM} x i8]"
    whole = (
        value
        if value in ("undef", "poison", "zeroinitializer")
        else (f"{{ {kind} {value}, {room} zeroinitializer }}")
    )
    return f"{match['name']} = {space}{match['kind']} {{ {kind}, {room} }} {whole}{comma}{more}"


def _initial(text: str) -> tuple[str, str, str]:
    """What a variable holds at first, and what is said behind it."""
    parts = split_top(text)
    return parts[0], ", " if len(parts) > 1 else "", ", ".join(parts[1:])


def _without_debug(lines: Sequence[str]) -> list[str]:
    """IR without debug locations: what is woven in has none, which LLVM does not allow beside others."""
    gone: set[str] = set()
    left = list(lines)
    while True:
        lost = {
            match[1]
            for line in left
            if (match := _NODE.match(line))
            and (_DEBUG.search(line) or not gone.isdisjoint(_NUMBERS.findall(match[2])))
        }
        if lost <= gone:
            break
        gone |= lost
    kept = []
    for line in left:
        match = _NODE.match(line)
        if line.startswith("!llvm.dbg") or (match is not None and match[1] in gone):
            continue
        kept.append(_ATTACHMENT.sub(lambda found: "" if found[1] in gone else found[0], line))
    return kept


def _variable(module: IRModule, match: re.Match[str]) -> GlobalMemory:
    kind = _first_type(match["rest"])
    return GlobalMemory(match["name"][1:].strip('"'), int(match["space"] or 0), module.bytes_of(kind))


def _first_type(text: str) -> str:
    """The type at the beginning of `[4 x i32] [i32 1, …], align 4`."""
    depth = 0
    for position, character in enumerate(text):
        if character in "[<{(":
            depth += 1
        elif character in "]>})":
            depth -= 1
        if depth == 0 and (character in "]>})" or text[position + 1 : position + 2] in (" ", ",", "")):
            return text[: position + 1]
    raise MalformedIR(f"A variable without a type: {text[:80]}")


def _entry(function: IRFunction) -> list[str]:
    """A function that takes the arguments out of memory and calls the kernel."""
    lines = [f"define void @{_ENTRY}(ptr %memory) {{"]
    handed = []
    for position, kind in enumerate(function.parameter_types):
        lines.append(f"  %place{position} = getelementptr i8, ptr %memory, i64 {128 * position}")
        if kind.startswith("byval"):
            raise MalformedIR(
                f"The kernel {function.name} takes a structure by value, which cannot be counted"
            )
        lines.append(f"  %argument{position} = load {kind}, ptr %place{position}, align 16")
        handed.append(f"{kind} %argument{position}")
    return [*lines, f'  call void @"{function.name}"({", ".join(handed)})', "  ret void", "}"]


@dataclass
class _Weaver:
    """Functions with counting calls woven in."""

    module: IRModule
    defined: frozenset[str]
    lines: SourceLines | None = None
    segments: list[Segment] = field(default_factory=list)
    branches: int = 0
    barrier: bool = False
    copies: int = 0
    _hooks: set[str] = field(default_factory=set)

    def declarations(self) -> list[str]:
        return [
            "declare void @__apportion_segment(i32)",
            "declare void @__apportion_branch(i32, i1 zeroext)",
            "declare void @__apportion_barrier()",
            *sorted(self._hooks),
        ]

    def function(self, lines: Sequence[str]) -> list[str]:
        woven = [_without_attributes(lines[0])]
        segment = _Open(len(woven))
        pending = ""
        for line in lines[1:]:
            if line.startswith("}"):
                self._close(segment, woven)
                woven.append(line)
                break
            if not line.strip() or _LABEL.match(line):
                self._close(segment, woven)
                woven.append(line)
                segment = _Open(len(woven))
                continue
            pending = f"{pending} {line.strip()}" if pending else line
            # A switch is the one instruction that is printed over several lines.
            if re.search(r"\bswitch\b", pending) and "]" not in pending:
                continue
            segment = self._instruction(pending, segment, woven)
            pending = ""
        return woven

    def _instruction(self, line: str, segment: _Open, woven: list[str]) -> _Open:
        match = _INSTRUCTION.match(line)
        if match is None:
            raise MalformedIR(f"An instruction that cannot be read: {line.strip()[:80]}")
        opcode, rest = match[2], match[3].split(" ; ")[0]
        if opcode == "call" and _MARKER.search(rest):
            return segment
        callee = CALLEE.search(rest) if opcode == "call" else None
        name = callee[1].strip('"') if callee else ""
        if BARRIERS.match(name):
            self.barrier = True
            self._close(segment, woven)
            woven.append("  call void @__apportion_barrier()")
            return _Open(len(woven))
        segment.add(opcode, _width(opcode, rest), _family(opcode, rest))
        touches = list(self._touches(opcode, rest))
        if self.lines is not None and (
            touches or name.startswith("_Z")
        ):  # built-in functions access memory too
            woven.append(f"  store i32 {self.lines.line_of(rest)}, ptr @{SITE}")
        woven += touches
        if opcode == "br" and rest.lstrip().startswith("i1 "):
            condition = split_top(rest.strip())[0]
            woven.append(f"  call void @__apportion_branch(i32 {self.branches}, i1 zeroext {condition[3:]})")
            self.branches += 1
        if opcode == "phi":
            segment.place = len(woven) + 1  # calls come after all of them
        woven.append(line if opcode != "call" else line.replace("musttail ", "").replace("notail ", ""))
        if name in self.defined:
            # What the function does comes between: a barrier in it must see the right count.
            self._close(segment, woven)
            return _Open(len(woven))
        return segment

    def _close(self, segment: _Open, woven: list[str]) -> None:
        """Put the call that counts a segment where it begins."""
        if segment.opcodes:
            woven.insert(segment.place, f"  call void @__apportion_segment(i32 {len(self.segments)})")
            counts = (segment.opcodes, segment.widths, segment.families)
            self.segments.append(Segment(*(tuple(count.items()) for count in counts)))  # type: ignore[arg-type]
            segment.opcodes = Counter()

    def _touches(self, opcode: str, rest: str) -> Iterator[str]:
        """The calls that say which memory an instruction touches."""
        text = re.sub(r"^(?:\s*(?:atomic|volatile|weak|inbounds))+\b", "", rest).strip()
        if opcode == "load":
            kind, pointer = split_top(text)[:2]
            yield self._hook("load", pointer, self._bytes(kind))
        elif opcode == "store":
            stored, pointer = split_top(text)[:2]
            yield self._hook("store", pointer, self._bytes(_first_type(stored)))
        elif opcode == "atomicrmw":
            pointer, value = split_top(text.split(" ", 1)[1])[:2]
            yield self._hook("update", pointer, self._bytes(_first_type(value)))
        elif opcode == "cmpxchg":
            pointer, value = split_top(text)[:2]
            yield self._hook("update", pointer, self._bytes(_first_type(value)))
        elif opcode == "call" and (match := _MEMORY.search(text)):
            inside = text[text.index("(", match.end()) + 1 : text.rindex(")")]
            target, source, length = split_top(inside)[:3]
            kind, size = length.split()[0], length.split()[-1]
            if not size.isdigit() and kind != "i32":
                name = f"%apportion.bytes.{self.copies}"  # a name, so that numbers of values stay
                self.copies += 1
                yield f"  {name} = trunc {kind} {size} to i32"
                size = name
            yield self._hook("store", _bare(target), size)
            if match[1] != "set":
                yield self._hook("load", _bare(source), size)

    def _hook(self, verb: str, pointer: str, size: int | str) -> str:
        match = _POINTER.match(_ORDERING.sub("", pointer))
        if match is None:
            raise MalformedIR(f"A pointer that cannot be read: {pointer[:80]}")
        name = f"@__apportion_{verb}_{match[2] or 0}"
        self._hooks.add(f"declare void {name}({match[1]}, i32)")
        return f"  call void {name}({match[1]} {match[3]}, i32 {size})"

    def _bytes(self, kind: str) -> int:
        # A vector in memory is as long as its lanes; `bytes_of` rounds up to what an array of it takes.
        if match := re.fullmatch(r"<(\d+) x (.*)>", kind.strip()):
            return int(match[1]) * self.module.bytes_of(match[2])
        return self.module.bytes_of(kind)


@dataclass
class _Open:
    """A segment that is still growing."""

    place: int
    "Where in the text its call belongs."
    opcodes: Counter[str] = field(default_factory=Counter)
    widths: Counter[int] = field(default_factory=Counter)
    families: Counter[str] = field(default_factory=Counter)

    def add(self, opcode: str, width: int, family: str) -> None:
        self.opcodes[opcode] += 1
        self.widths[width] += 1
        self.families[family] += 1


def _width(opcode: str, rest: str) -> int:
    """How many lanes the result of an instruction has."""
    if opcode in _SCALAR_RESULT:
        return 1
    if opcode == "call":
        rest = rest.split("@")[0]
    elif opcode in ("load", "phi"):
        rest = split_top(rest)[0]
    elif opcode == "getelementptr":
        rest = " ".join(re.findall(r"<\d+ x ptr", rest))
    elif opcode == "shufflevector":
        rest = split_top(rest)[2]
    found = _LANES.search(rest)
    return int(found[1]) if found else 1


def _family(opcode: str, rest: str) -> str:
    """Which of `FAMILIES` an instruction belongs to; a call of arithmetic or of an atomic is what it does."""
    if opcode == "call":
        called = family_of(rest)
        if called in ("fused", "root", "power", "trigonometric"):
            return "fp"
        if called in ("atomic", "memory"):
            return "mem"
        if called == "extremum":
            return "fp" if re.search(r"\b(?:float|double|half)\b", rest.split("@")[0]) else "int"
        return "call"
    return _FAMILY_OF.get(opcode, "other")


def _bare(argument: str) -> str:
    """`ptr addrspace(1) noundef align 4 %0` without its attributes."""
    match = _POINTER.match(argument.strip())
    if match is None:
        raise MalformedIR(f"A pointer that cannot be read: {argument[:80]}")
    value = match[3]
    start = (
        value.find("getelementptr")
        if "getelementptr" in value
        else max(value.rfind(" %"), value.rfind(" @")) + 1
    )
    return f"{match[1]} {value[start:]}"


def _without_attributes(line: str) -> str:
    """The first line of a function, without what no longer holds once it counts (`memory(none)` …)."""
    return re.sub(r"\b(?:internal|private|linkonce_odr|norecurse|readnone|readonly) ", "", line)
