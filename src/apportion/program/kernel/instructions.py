"""The functions of an LLVM module as lists of instructions: enough to follow a pointer to where it came from.

This reads what clang prints for OpenCL C at the optimisation level the driver uses. It knows the operands of
every instruction, and the parts of those that touch memory; `apportion.program.llvm` builds program graphs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from apportion.errors import MalformedIR

_NAME = r'%(?:[-\w$.]+|"[^"]*")'
DEFINE = re.compile(r'^define\b.*?@([-\w$.]+|"[^"]*")\(')
_RESULT = re.compile(rf"^\s+(?:({_NAME}) = )?(.*)$")
_LABEL = re.compile(r'^([-\w$.]+|"[^"]*"):')
_TYPE = re.compile(rf"^({_NAME}) = type (.+)$")
_METADATA = re.compile(r"^!(\d+) = (?:distinct )?!\{(.*)\}$")
_TRAILER = re.compile(r"(?:, ![-\w.$]+ !\d+)+\s*$|(?:, align \d+)\s*$")
CALLEE = re.compile(r'@([-\w$.]+|"[^"]*")\(')
_VALUE = re.compile(rf"{_NAME}")
_SCALAR_BYTES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "x86_fp80": 16, "fp128": 16}


@dataclass(frozen=True)
class Instruction:
    """One instruction: `result = opcode …`."""

    result: str | None
    opcode: str
    type: str
    "The type of the result, or of the value that a store writes."
    operands: tuple[str, ...]
    "Values in order: `%name`, or a constant as it is printed."
    block: str
    text: str
    callee: str = ""
    incoming: tuple[str, ...] = ()
    "The blocks a phi's operands come from; the targets of a branch."
    element: str = ""
    "The source element type of a getelementptr; the operation of an atomicrmw; the predicate of a "
    "comparison."
    operand_types: tuple[str, ...] = ()


@dataclass(frozen=True)
class IRFunction:
    """A function with a body."""

    name: str
    is_kernel: bool
    parameters: tuple[str, ...]
    parameter_types: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    metadata: dict[str, str] = field(default_factory=dict)
    "Attachment → the number of its metadata node."
    by_value: dict[int, str] = field(default_factory=dict)
    "Parameter → the type of the structure that is passed by value in its place."

    def by_result(self) -> dict[str, Instruction]:
        """Every instruction that has a result, by its name."""
        return {i.result: i for i in self.instructions if i.result is not None}


@dataclass(frozen=True)
class IRModule:
    """What a file of LLVM IR defines."""

    functions: dict[str, IRFunction]
    types: dict[str, str]
    metadata: dict[str, str]

    @property
    def kernels(self) -> list[IRFunction]:
        """The functions that a host may launch, in the order they are written."""
        return [function for function in self.functions.values() if function.is_kernel]

    def bytes_of(self, type_text: str) -> int:
        """The bytes that a value of this type takes in an array.

        Raises:
            MalformedIR: a type whose size is unknown here.
        """
        return _layout(type_text.strip(), self.types)[0]

    def scalars_of(self, type_text: str) -> list[tuple[str, int]]:
        """The single values that a type is made of, `i32` or `float`, and where each starts.

        Raises:
            MalformedIR: a type whose size is unknown here.
        """
        return list(_flattened(type_text.strip(), 0, self.types))

    def offset_of(self, type_text: str, index: int) -> tuple[int, str]:
        """Where field `index` of a struct starts, and its type."""
        packed, fields = _fields(_resolve(type_text.strip(), self.types))
        offset = 0
        for position, part in enumerate(fields):
            size, align = _layout(part, self.types)
            offset = offset if packed else -(-offset // align) * align
            if position == index:
                return offset, part
            offset += size
        raise MalformedIR(f"The type {type_text} has no field {index}")


def read_module(text: str) -> IRModule:
    """The functions, types and metadata of LLVM IR in text form."""
    functions: dict[str, IRFunction] = {}
    types: dict[str, str] = {}
    metadata: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("define"):
            function = _function(line, lines)
            functions[function.name] = function
        elif match := _TYPE.match(line):
            types[match[1]] = match[2]
        elif match := _METADATA.match(line):
            metadata[match[1]] = match[2]
    return IRModule(functions, types, metadata)


def split_top(text: str, separator: str = ",") -> list[str]:
    """The parts of a list, where separators inside brackets and quotes do not count."""
    parts, depth, start, quoted = [], 0, 0, False
    for position, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
        elif character == separator and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _function(line: str, lines: Iterator[str]) -> IRFunction:
    match = DEFINE.match(line)
    if match is None:
        raise MalformedIR(f"A definition without a name: {line[:80]}")
    inside, rest = _parenthesised(line, match.end() - 1)
    names, kinds = [], []
    by_value: dict[int, str] = {}
    for position, parameter in enumerate(split_top(inside)):
        if (structure := re.search(r"\bbyval\((.+?)\)(?=[\s,]|$)", parameter)) is not None:
            by_value[position] = structure[1]
        kind, name = _typed(parameter)
        names.append(name if name.startswith("%") else f"%{position}")
        kinds.append(kind)
    attached = dict(re.findall(r"!([-\w.$]+) !(\d+)", rest))
    instructions: list[Instruction] = []
    block = "%entry"
    pending = ""
    for body in lines:
        if body.startswith("}"):
            break
        if label := _LABEL.match(body):
            block = f"%{label[1]}"
            continue
        pending += " " + body.strip() if pending else body
        # A switch is the one instruction that is printed over several lines.
        if re.search(r"\[\s*$", pending) or (" switch " in f" {pending}" and "]" not in pending):
            continue
        if pending.strip():
            instructions.append(_instruction(pending, block))
        pending = ""
    return IRFunction(
        match[1].strip('"'), "spir_kernel" in line[: match.end()] or "amdgpu_kernel" in line[: match.end()],
        tuple(names), tuple(kinds), tuple(instructions), attached, by_value,
    )  # fmt: skip


def _instruction(line: str, block: str) -> Instruction:
    match = _RESULT.match(line)
    if match is None:
        raise MalformedIR(f"An instruction that cannot be read: {line[:80]}")
    result, body = match[1], match[2].split(" ; ")[0]
    while trimmed := _TRAILER.search(body):
        body = body[: trimmed.start()]
    words = [w for w in body.split() if w not in ("tail", "musttail", "notail")]
    opcode = words[0] if words else ""
    body = " ".join(words[1:])
    read = _READERS.get(opcode, _generic)
    type_text, operands, more = read(body)
    return Instruction(result, opcode, type_text, tuple(operands), block, line.strip(), **more)  # type: ignore[arg-type]


_Parts = tuple[str, list[str], dict[str, object]]


def _call(body: str) -> _Parts:
    match = CALLEE.search(body)
    if match is None:  # an indirect call, or inline assembly: every value is an operand
        return "", _VALUE.findall(body), {}
    inside, _ = _parenthesised(body, match.end() - 1)
    typed = [_typed(argument) for argument in split_top(inside)]
    kinds = body[: match.start()].split()
    return (
        kinds[-1] if kinds else "",
        [value for _, value in typed],
        {"callee": match[1].strip('"'), "operand_types": tuple(kind for kind, _ in typed)},
    )


def _load(body: str) -> _Parts:
    body = re.sub(r"^(?:(?:atomic|volatile)\s+)*", "", body)
    kind, pointer = split_top(body)[:2]
    pointer_type, value = _typed(pointer)
    return kind, [value], {"operand_types": (pointer_type,)}


def _store(body: str) -> _Parts:
    body = re.sub(r"^(?:(?:atomic|volatile)\s+)*", "", body)
    stored, pointer = split_top(body)[:2]
    kind, value = _typed(stored)
    pointer_type, target = _typed(pointer)
    return kind, [value, target], {"operand_types": (kind, pointer_type)}


def _element_pointer(body: str) -> _Parts:
    body = re.sub(r"^(?:(?:inbounds|nuw|nusw)\s+)*", "", body)
    element, *rest = split_top(body)
    typed = [_typed(part) for part in rest]
    return typed[0][0], [value for _, value in typed], {"element": element}


def _atomic_update(body: str) -> _Parts:
    operation, rest = re.sub(r"^volatile\s+", "", body).split(" ", 1)
    pointer, value = split_top(rest)[:2]
    kind, operand = _typed(
        re.sub(r"\s+(?:syncscope\(.*?\)\s+)?(?:monotonic|acquire|release|acq_rel|seq_cst)$", "", value)
    )
    return kind, [_typed(pointer)[1], operand], {"element": operation}


def _exchange(body: str) -> _Parts:
    pointer, *rest = split_top(re.sub(r"^(?:(?:weak|volatile)\s+)*", "", body))
    return "", [_typed(pointer)[1], *(_VALUE.findall(" ".join(rest)))], {}


def _phi(body: str) -> _Parts:
    kind, _, rest = body.partition("[")
    pairs = [split_top(pair.strip()[1:-1]) for pair in split_top("[" + rest)]
    return kind.strip(), [value for value, _ in pairs], {"incoming": tuple(block for _, block in pairs)}


def _branch(body: str) -> _Parts:
    targets = tuple(re.findall(rf"label ({_NAME})", body))
    return "", _VALUE.findall(body.split(", label")[0]) if "," in body else [], {"incoming": targets}


def _binary(body: str) -> _Parts:
    body = re.sub(
        r"^(?:(?:nuw|nsw|exact|disjoint|nneg|fast|nnan|ninf|nsz|arcp|contract|afn|reassoc)\s+)*", "", body
    )
    first, *rest = split_top(body)
    kind, value = _typed(first)
    return kind, [value, *rest], {}


def _compare(body: str) -> _Parts:
    predicate, rest = re.sub(r"^(?:(?:samesign|fast|nnan|ninf|nsz)\s+)*", "", body).split(" ", 1)
    kind, operands, _ = _binary(rest)
    return kind, operands, {"element": predicate}


def _cast(body: str) -> _Parts:
    source, _, target = re.sub(r"^(?:(?:nneg|nuw|nsw)\s+)*", "", body).rpartition(" to ")
    kind, value = _typed(source)
    return target.strip(), [value], {"operand_types": (kind,)}


def _select(body: str) -> _Parts:
    typed = [_typed(part) for part in split_top(body)]
    return typed[1][0], [value for _, value in typed], {}


def _lanes(body: str) -> _Parts:
    typed = [_typed(part) for part in split_top(body)]
    return typed[0][0], [value for _, value in typed], {}


def _generic(body: str) -> _Parts:
    return "", _VALUE.findall(body), {}


_BINARY = ("add", "sub", "mul", "udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr", "and", "or", "xor")
_CASTS = ("sext", "zext", "trunc", "bitcast", "addrspacecast", "ptrtoint", "inttoptr")
_READERS = {
    "switch": _branch, "call": _call, "load": _load, "store": _store, "getelementptr": _element_pointer,
    "atomicrmw": _atomic_update, "cmpxchg": _exchange, "phi": _phi, "br": _branch, "icmp": _compare,
    "select": _select, "extractelement": _lanes, "insertelement": _lanes, "shufflevector": _lanes,
    **dict.fromkeys(_BINARY, _binary), **dict.fromkeys(_CASTS, _cast),
}  # fmt: skip


def _typed(text: str) -> tuple[str, str]:
    """`ptr addrspace(1) noundef align 4 %x` → ("ptr addrspace(1)", "%x")."""
    text = text.strip()
    if text.startswith(("[", "{", "<")):
        depth = 0
        for position, character in enumerate(text):
            depth += (character in "[{<(") - (character in "]}>)")
            if depth == 0:
                kind, rest = text[: position + 1], text[position + 1 :].strip()
                return kind, _last_value(rest)
    if text.startswith("target("):
        inside, rest = _parenthesised(text, len("target"))
        return f"target({inside})", _last_value(rest.strip())
    words = text.split(None, 1)
    if len(words) < 2:
        return text, text
    kind, rest = words
    if kind == "ptr" and (match := re.match(r"addrspace\(\d+\)", rest)):
        kind, rest = f"ptr {match[0]}", rest[match.end() :].strip()
    return kind, _last_value(rest)


def _last_value(text: str) -> str:
    """The value at the end of `noundef align 4 %x`; constant expressions and vectors stay whole."""
    attribute = (
        r"(?:align \d+|noundef|nocapture|readonly|writeonly|readnone|noalias|nonnull|signext|zeroext|returned"
    )
    attribute += (
        r"|dead_on_unwind|writable|captures\([^)]*\)|range\([^)]*\)|dereferenceable(?:_or_null)?\(\d+\)"
    )
    attribute += r"|(?:byval|sret|byref)\([^)]*\))"
    return re.sub(rf"^(?:{attribute}(?:\s+|$))+", "", text).strip()


def _parenthesised(text: str, start: int) -> tuple[str, str]:
    """What stands inside the parenthesis that opens at `start`, and what follows it."""
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0:
            return text[start + 1 : position], text[position + 1 :]
    raise MalformedIR(f"A parenthesis that does not close: {text[:80]}")


def _resolve(text: str, types: dict[str, str]) -> str:
    for _ in range(16):
        if text not in types:
            return text
        text = types[text]
    raise MalformedIR(f"The type {text} is defined by itself")


def _fields(text: str) -> tuple[bool, list[str]]:
    packed = text.startswith("<{")
    inside = text[2:-2] if packed else text[1:-1]
    return packed, split_top(inside)


MOST_SCALARS = 4096
"Values of a type that are told apart."


def _flattened(text: str, start: int, types: dict[str, str]) -> Iterator[tuple[str, int]]:
    text = _resolve(text, types)
    if match := re.fullmatch(r"[\[<](\d+) x (.+)[\]>]", text):
        width = _layout(match[2], types)[0]
        for number in range(min(int(match[1]), MOST_SCALARS)):
            yield from _flattened(match[2], start + number * width, types)
    elif text.startswith(("{", "<{")):
        packed, fields = _fields(text)
        offset = start
        for part in fields:
            size, align = _layout(part, types)
            offset = offset if packed else start + -(-(offset - start) // align) * align
            yield from _flattened(part, offset, types)
            offset += size
    else:
        yield text, start


def _layout(text: str, types: dict[str, str]) -> tuple[int, int]:
    """(bytes, alignment) of a type under spir64's rules."""
    text = _resolve(text, types)
    if match := re.fullmatch(r"i(\d+)", text):
        size = 1 << max(0, (int(match[1]) - 1).bit_length() - 3)
        return size, min(size, 8)
    if text in _SCALAR_BYTES:
        return _SCALAR_BYTES[text], _SCALAR_BYTES[text]
    if text.startswith(("ptr", "target(")):  # events, images and samplers are handles
        return 8, 8
    if match := re.fullmatch(r"<(\d+) x (.+)>", text):
        count, element = int(match[1]), _layout(match[2], types)[0]
        size = element * (1 << (count - 1).bit_length())  # three elements take the place of four
        return size, size
    if match := re.fullmatch(r"\[(\d+) x (.+)\]", text):
        size, align = _layout(match[2], types)
        return int(match[1]) * size, align
    if text.startswith(("{", "<{")):
        packed, fields = _fields(text)
        offset, widest = 0, 1
        for part in fields:
            size, align = _layout(part, types)
            align = 1 if packed else align
            offset, widest = -(-offset // align) * align + size, max(widest, align)
        return -(-offset // widest) * widest, widest
    raise MalformedIR(f"The size of the type {text!r} is not known")
