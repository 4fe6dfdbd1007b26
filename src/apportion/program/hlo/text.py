"""HLO text → serialized HloModuleProto, as far as features need it; XLA itself is not asked.

    HloModule jit_f
    region_0.1 {
      x = f32[] parameter(0)
      y = f32[] parameter(1)
      ROOT add.2 = f32[] add(x, y)
    }
    ENTRY main.5 {
      a = f32[8,4]{1,0} parameter(0)
      zero = f32[] constant(0)
      ROOT sum = f32[8]{0} reduce(a, zero), dimensions={1}, to_apply=region_0.1
    }

Names may be written with or without %, operands with or without their shapes. Attributes that no feature is
made of are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from apportion.errors import MalformedInput
from apportion.program import wire

_TYPES = (
    "invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 tuple opaque c64 bf16 token c128 f8e5m2 f8e4m3fn "
    "s4 u4 f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1 f4e2m1fn f8e8m0fnu"
)
TYPES = {name: number for number, name in enumerate(_TYPES.split())}
"XLA's PrimitiveType by the names that the text has."

_CALLS = (
    "calls", "to_apply", "condition", "body", "true_computation", "false_computation", "branch_computations",
    "select", "scatter", "called_computations", "comparator",
)  # fmt: skip
_CLOSING = {"(": ")", "{": "}", "[": "]"}
_INSTRUCTION = re.compile(r"\s*(ROOT\s+)?%?([\w.\-]+)\s*=\s*")
_HEADER = re.compile(r"\s*(?:ENTRY\s+)?%?([\w.\-]+)\s*(?:\(.*\)\s*->.*)?\{\s*$")
_SHAPE = re.compile(r"([a-z]\w*)\s*\[([^\]]*)\]")
_LAYOUT = re.compile(r"\{([\d,\s]*)(?::[^}]*)?\}")
_OPCODE = re.compile(r"\s*([\w\-]+)\s*\(")
_COMMENT = re.compile(r"/\*.*?\*/")


def is_hlo_text(data: bytes) -> bool:
    """Whether this looks like text rather than a serialized module."""
    return data.lstrip().startswith((b"HloModule", b"ENTRY", b"//"))


def module_of_text(text: str, *, name: str = "<input>") -> bytes:
    """The serialized module that a text stands for.

    Raises:
        MalformedInput: it is no HLO text; the message has the file and the line.
    """
    title, computations = "", []
    computation: _Computation | None = None
    for number, line in _logical_lines(text):
        try:
            if computation is None:
                found = re.match(r"\s*HloModule\s+([\w.\-]+)", line)
                if found:
                    title = found[1]
                elif header := _HEADER.match(line):
                    computation = _Computation(header[1], [])
            elif line.strip() == "}" or line.strip().startswith("},"):
                computations.append(computation)
                computation = None
            else:
                computation.instructions.append(_instruction(line, number))
        except _NotHlo as error:
            raise MalformedInput(f"this is no HLO text: {error}", file=name, line=number) from error
    if computation is not None:
        raise MalformedInput(f"the computation {computation.name!r} does not end", file=name, line=number)
    if not computations:
        raise MalformedInput("this is no HLO text: it has no computations", file=name)
    return _serialized(title, computations, name)


class _NotHlo(ValueError):
    """What is wrong with a line."""


@dataclass(frozen=True)
class _Instruction:
    name: str
    root: bool
    opcode: str
    fields: list[wire.Field]
    operands: list[str]
    called: list[str]
    line: int


@dataclass(frozen=True)
class _Computation:
    name: str
    instructions: list[_Instruction]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers from 1; an instruction that runs over several is one, where it begins."""
    start, kept, depth = 0, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        line = _COMMENT.sub("", line)
        if not kept:
            if not line.strip() or line.strip().startswith("//"):
                continue
            start = number
        kept += line
        depth += _depth(line)
        opens = line.rstrip().endswith("{") and depth == 1
        if depth <= 0 or (opens and "=" not in kept.split("(")[0]):
            yield start, kept
            kept, depth = "", 0
    if kept:
        yield start, kept


def _depth(line: str) -> int:
    """How many brackets a line leaves open; those in quotes do not count."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", line) if '"' in line else line
    if bare.strip() in ("}", "},"):
        return 0
    # An arrow is no bracket, and neither are comparisons: HLO has no < > outside dimensions like <=8.
    return sum(bare.count(opening) - bare.count(closing) for opening, closing in _CLOSING.items())


def _instruction(line: str, number: int) -> _Instruction:
    head = _INSTRUCTION.match(line)
    if head is None:
        raise _NotHlo(f"{line.strip()[:60]!r} is no instruction")
    shape, place = _shape(line, head.end())
    opcode = _OPCODE.match(line, place)
    if opcode is None:
        raise _NotHlo(f"{head[2]!r} has no opcode behind its shape")
    end = _closing(line, opcode.end() - 1)
    inside = line[opcode.end() : end]
    attributes = dict(_attributes(line[end + 1 :]))
    fields: list[wire.Field] = [(2, opcode[1].encode()), (3, shape), *_fields(opcode[1], inside, attributes)]
    operands = (
        [] if opcode[1] in ("constant", "parameter", "iota") else [_name(one) for one in _parts(inside)]
    )
    called = [_name(one) for key in _CALLS if key in attributes for one in _parts(_bare(attributes[key]))]
    return _Instruction(head[2], head[1] is not None, opcode[1], fields, operands, called, number)


def _shape(line: str, place: int) -> tuple[bytes, int]:
    """The serialized shape that begins at a place, and where it ends."""
    while place < len(line) and line[place] == " ":
        place += 1
    if place < len(line) and line[place] == "(":
        end = _closing(line, place)
        parts = [_shape(part, 0)[0] for part in _parts(line[place + 1 : end])]
        return wire.message([(2, TYPES["tuple"]), *((4, part) for part in parts)]), end + 1
    found = _SHAPE.match(line, place)
    if found is None or found[1] not in TYPES:
        raise _NotHlo(f"{line[place : place + 30]!r} is no shape")
    sizes = [_integer(size.strip().lstrip("<=")) for size in found[2].split(",") if size.strip()]
    fields: list[wire.Field] = [(2, TYPES[found[1]])]
    if sizes:
        fields.append((3, wire.packed(sizes)))
    end = found.end()
    layout = _LAYOUT.match(line, end)
    if layout is not None:
        order = _integers(layout[1])
        fields.append((5, wire.message([(1, wire.packed(order))] if order else [])))
        end = layout.end()
    return wire.message(fields), end


def _fields(opcode: str, inside: str, attributes: dict[str, str]) -> Iterator[wire.Field]:
    """What attributes say that features are made of."""
    if opcode == "parameter":
        yield 9, _integer(inside)
    if "dimensions" in attributes:
        yield 14, wire.packed(_integers(_bare(attributes["dimensions"])))
    if "iota_dimension" in attributes:
        yield 14, wire.packed([_integer(attributes["iota_dimension"])])
    if "window" in attributes:
        yield 15, _window(_bare(attributes["window"]))
    elif opcode == "convolution":
        yield 15, b""
    if "dim_labels" in attributes:
        yield 16, _convolution(attributes["dim_labels"])
    if "slice" in attributes:
        for piece in re.findall(r"\[([^\]]*)\]", attributes["slice"]):
            start, limit, *stride = (_integer(part) for part in piece.split(":"))
            yield 17, wire.message([(1, start), (2, limit), (3, stride[0] if stride else 1)])
    if "dynamic_slice_sizes" in attributes:
        yield 20, wire.packed(_integers(_bare(attributes["dynamic_slice_sizes"])))
    if "padding" in attributes:
        edges = [[_integer(part) for part in one.split("_")] for one in attributes["padding"].split("x")]
        yield (
            21,
            wire.message([(1, wire.message([(1, one[0] % 2**64), (2, one[1] % 2**64)])) for one in edges]),
        )
    for key, field in (("feature_group_count", 50), ("batch_group_count", 58)):
        if key in attributes or opcode in ("convolution", "custom-call"):
            yield field, _integer(attributes.get(key, "1"))
    if attributes.get("is_stable") == "true":
        yield 60, 1


def _window(text: str) -> bytes:
    """`size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=… rhs_dilate=… rhs_reversal=…`."""
    said = dict(part.split("=", 1) for part in text.split() if "=" in part)
    count = len(said.get("size", "").split("x")) if said.get("size") else 0

    def column(key: str, default: str) -> list[str]:
        found = said[key].split("x") if key in said else [default] * count
        if len(found) != count:
            raise _NotHlo(f"the window {text!r} has {len(found)} of {key}, not {count}")
        return found

    pads = [[_integer(part) for part in pad.split("_")] for pad in column("pad", "0_0")]
    names = (("size", "1"), ("stride", "1"), ("rhs_dilate", "1"), ("lhs_dilate", "1"), ("rhs_reversal", "0"))
    sizes, strides, window_dilation, base_dilation, reversal = (
        [_integer(value) for value in column(key, default)] for key, default in names
    )
    return wire.message([
        (1, wire.message([
            (1, sizes[i]), (2, strides[i]), (3, pads[i][0] % 2**64), (4, pads[i][1] % 2**64),
            (5, window_dilation[i]), (6, base_dilation[i]), (7, reversal[i]),
        ]))
        for i in range(count)
    ])  # fmt: skip


def _convolution(labels: str) -> bytes:
    """`b01f_01io->b01f`: where batch, feature and spatial dimensions stand in input, kernel and output."""
    found = re.fullmatch(r"(\w+?)_(\w+)->(\w+)", labels)
    if found is None:
        raise _NotHlo(f"{labels!r} are no labels of dimensions")
    given, kernel, result = found.groups()

    def spatial(part: str) -> list[int]:
        digits = sorted(letter for letter in part if letter.isdigit())
        return [part.index(digit) for digit in digits]

    return wire.message([
        (3, kernel.find("i")), (4, kernel.find("o")), (6, wire.packed(spatial(kernel))),
        (7, given.find("b")), (8, given.find("f")), (9, result.find("b")), (10, result.find("f")),
        (11, wire.packed(spatial(given))), (12, wire.packed(spatial(result))),
    ])  # fmt: skip


def _serialized(title: str, computations: Sequence[_Computation], name: str) -> bytes:
    numbers = {computation.name: number for number, computation in enumerate(computations, 1)}
    next_identity, whole = 1, []
    for computation in computations:
        identities = {one.name: next_identity + place for place, one in enumerate(computation.instructions)}
        next_identity += len(identities)
        made, root = [], 0
        for one in computation.instructions:
            for used, known, kind in (
                (one.operands, identities, "operand"),
                (one.called, numbers, "computation"),
            ):
                missing = [word for word in used if word not in known]
                if missing:
                    problem = f"{one.name!r} uses the {kind} {missing[0]!r}, which is not there"
                    raise MalformedInput(problem, file=name, line=one.line)
            fields = [*one.fields, (35, identities[one.name])]
            if one.operands:
                fields.append((36, wire.packed(identities[word] for word in one.operands)))
            if one.called:
                fields.append((38, wire.packed(numbers[word] for word in one.called)))
            made.append(wire.message(fields))
            if one.root:
                root = identities[one.name]
        if not root and computation.instructions:
            root = identities[computation.instructions[-1].name]  # the last one, where none is marked
        inner: list[wire.Field] = [
            (1, computation.name.encode()),
            *((2, one) for one in made),
            (5, numbers[computation.name]),
        ]
        whole.append(wire.message([*inner, (6, root)]))
    return wire.message([(1, title.encode()), *((3, one) for one in whole)])


def _closing(line: str, place: int) -> int:
    """Where the bracket that opens at a place closes."""
    depth, quoted = 0, False
    for at in range(place, len(line)):
        letter = line[at]
        if letter == '"' and line[at - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += letter in "({["
            depth -= letter in ")}]"
            if depth == 0:
                return at
    raise _NotHlo(f"the bracket behind {line[:place].strip()[-30:]!r} does not close")


def _parts(text: str) -> list[str]:
    """A list's parts; commas in brackets or quotes do not separate."""
    parts, depth, quoted, first = [], 0, False, 0
    for at, letter in enumerate(text):
        if letter == '"' and (at == 0 or text[at - 1] != "\\"):
            quoted = not quoted
        elif not quoted:
            depth += letter in "({["
            depth -= letter in ")}]"
            if letter == "," and depth == 0:
                parts.append(text[first:at])
                first = at + 1
    return [part.strip() for part in (*parts, text[first:]) if part.strip()]


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    for part in _parts(text):
        key, equals, value = part.partition("=")
        if equals:
            yield key.strip(), value.strip()


def _name(operand: str) -> str:
    return operand.split()[-1].lstrip("%")


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith("{") and text.endswith("}") else text


def _integers(text: str) -> list[int]:
    return [_integer(part) for part in text.split(",") if part.strip()]


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _NotHlo(f"{text[:30]!r} is no whole number") from None
