"""CUDA and HIP: what clang is told so that kernels need no toolkit, and IR that reads like that of OpenCL C.

Device code is compiled for SPIR-V, where clang makes pointers among a kernel's arguments global ones and
keeps shared memory apart, as OpenCL C has it. Kernels then get their plain names, and their arguments' types.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from apportion.errors import InvalidSetting

LANGUAGES = ("cuda", "hip")
FORM = "5"
"Changes whenever `like_opencl` does; part of the key of kept IR."

TARGET = "spirv64-unknown-unknown"
HEADERS = Path(__file__).parent / "cuda_headers"
"Declarations of our own in place of a toolkit's."

ASSUMED = (
    "CUDA and HIP: pointers among a kernel's arguments were taken for global memory, the warp for 32 "
    "threads, and shuffles for sub-group functions of OpenCL"
)
_DEFINES = {
    "cuda": ("__CUDACC__=1", "__NVCC__=1", "__CUDA_ARCH__=700"),
    "hip": ("__HIPCC__=1", "__HIP_PLATFORM_AMD__=1", "__HIP_DEVICE_COMPILE__=1"),
}

_READ_ONLY = {"cuda": "CUDA", "hip": "HIP", "spirv": "SPIR-V"}
_KERNEL = re.compile(
    r"^define\b[^@\n]*\bspir_kernel void @(?P<name>[\w.$]+)\((?P<arguments>[^\n]*)$", re.MULTILINE
)
_ARGUMENT = re.compile(
    r"%([\w.]+?)(?:\.coerce)?(?=,|\)(?: local_unnamed_addr| unnamed_addr| #| comdat| \{|$))"
)
_BUILTIN = {
    "b": "bool", "c": "char", "a": "char", "h": "uchar", "s": "short", "t": "ushort", "i": "int", "j": "uint",
    "l": "long", "m": "ulong", "x": "long", "y": "ulong", "f": "float", "d": "double", "v": "void",
}  # fmt: skip
"Itanium's letter of a type: what OpenCL C calls it."


def arguments(language: str, standard: str | None, optimization: str, *, vectorize: bool) -> list[str]:
    """The words that make clang's own compiler (`-cc1`) read device code alone, without a toolkit."""
    return [
        "-cc1", "-triple", TARGET, "-aux-triple", "x86_64-linux-gnu", "-fcuda-is-device",
        *("-x", language, f"-std={standard or 'c++17'}"),
        f"-O{optimization}",
        *(["-vectorize-loops", "-vectorize-slp"] if vectorize and optimization > "1" else []),
        "-fno-builtin", "-ffreestanding", "-nostdsysteminc",
        *(f"-D{define}" for define in _DEFINES[language]),
        *("-isystem", str(HEADERS), "-include", "cuda_builtins.h"),
    ]  # fmt: skip


def refuse_to_run(language: str, name: str) -> None:
    """Say that a source cannot be run.

    Raises:
        InvalidSetting: it is CUDA, HIP or SPIR-V.
    """
    if language in _READ_ONLY:
        raise InvalidSetting(
            f"{name} is {_READ_ONLY[language]}, which is read but not run: "
            "use graph, predict, explain or analyze, or give the kernel in OpenCL C"
        )


def like_opencl(ir: str) -> str:
    """IR with kernels under the names that the source gives them, and with what their arguments are.

    Instances of one template have its arguments behind its name: `scale.float`. A name that several kernels
    share in another way, as overloads do, stays as the compiler writes it.
    """
    ir = _spaces_told(ir)
    found = [match["name"] for match in _KERNEL.finditer(ir)]
    plain = {name: plain_name(name) for name in found}
    shared = Counter(plain.values())
    plain = {name: instance_name(name) if shared[short] > 1 else short for name, short in plain.items()}
    shared = Counter(plain.values())
    taken = set(re.findall(r"@([\w.$]+)", ir))
    renamed = {
        name: short
        for name, short in plain.items()
        if short != name and shared[short] == 1 and short not in taken
    }
    notes: list[str] = []
    first = 1 + max((int(number) for number in re.findall(r"^!(\d+) = ", ir, re.MULTILINE)), default=-1)

    def described(match: re.Match[str]) -> str:
        line = match[0]
        names = _ARGUMENT.findall(match["arguments"])
        kinds = parameters_of(match["name"])
        if kinds is None or len(kinds) != len(names):
            body = ir[match.end() : ir.index("\n}", match.end())]
            given = match["arguments"].split(", ")
            kinds = [_kind_seen(words, name, body) for words, name in zip(given, names, strict=False)]
            if len(kinds) != len(names) or not all(kinds):
                kinds = []
        texts = [("kernel_arg_name", names)]
        if kinds:
            texts += [("kernel_arg_type", kinds), ("kernel_arg_base_type", kinds)]
        words = ""
        for kind, values in texts:
            words += f" !{kind} !{first + len(notes)}"
            notes.append(", ".join(f'!"{value}"' for value in values))
        if kinds:
            words += f" !kernel_arg_addr_space !{first + len(notes)}"
            notes.append(", ".join(f"i32 {int(kind.endswith('*'))}" for kind in kinds))
        return re.sub(r" \{$", lambda _: f"{words} {{", line)

    ir = _KERNEL.sub(described, ir)
    ir += "".join(f"!{first + index} = !{{{note}}}\n" for index, note in enumerate(notes))
    return re.sub(r"@([\w.$]+)", lambda match: f"@{renamed.get(match[1], match[1])}", ir)


_SCALARS = {"i8": "char", "i16": "short", "i32": "int", "i64": "long", "float": "float", "double": "double"}


def _kind_seen(argument: str, name: str, body: str) -> str:
    """The type of an argument as the code uses it; empty where it does not tell."""
    if by_value := re.search(r"byval\(%(?:struct|class|union)\.([\w.]+)\)", argument):
        return by_value[1]
    if not argument.startswith("ptr"):
        return _SCALARS.get(argument.split(" ")[0], "")
    used = re.search(
        rf"(?:getelementptr (?:inbounds )?|load |store )(?:%(?:struct|class|union)\.)?([\w.]+)[^\n]*?, "
        rf"ptr addrspace\(1\) %{re.escape(name)}(?:\.coerce)?\b",
        body,
    ) or re.search(rf"atomicrmw [^\n]* ptr addrspace\(1\) %{re.escape(name)}(?:\.coerce)?, (\w+)", body)
    return f"{_SCALARS.get(used[1], used[1])}*" if used else "char*"


def plain_name(mangled: str) -> str:
    """A function's name without namespaces, template arguments and types: `_Z5saxpyifPf` → `saxpy`."""
    parts = _names(mangled)
    return parts[0] if parts else mangled


def instance_name(mangled: str) -> str:
    """The same with the arguments of a template behind it: `_Z5scaleIfLi4EEvPT_` → `scale.float.4`."""
    parts = _names(mangled)
    if parts is None or not parts[1].startswith("I"):
        return mangled
    types = _Types(parts[1])
    types.all()
    return ".".join([parts[0], *(re.sub(r"\W", "p", each) for each in types.template)])


def parameters_of(mangled: str) -> list[str] | None:
    """The types of a function's parameters in words of OpenCL C; None where its name does not tell them.

    Only names without namespaces are read, with plain types, structures, vectors and pointers to them; a
    template's parameters where its arguments are plain types.
    """
    parts = _names(mangled)
    if parts is None or not mangled.startswith("_Z") or mangled.startswith("_ZN"):
        return None
    return _Types(parts[1]).all()


def _names(mangled: str) -> tuple[str, str] | None:
    match = re.match(r"_Z(N?)", mangled)
    if match is None:
        return None
    rest, name = mangled[match.end() :], ""
    while length := re.match(r"\d+", rest):
        end = length.end() + int(length[0])
        name, rest = rest[length.end() : end], rest[end:]
        if not match[1]:
            break
    return (name, rest) if name else None


class _Types:
    """Reads the types that a mangled name ends with."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.seen: list[str] = []
        self.template: list[str] = []

    def all(self) -> list[str] | None:
        try:
            if self._took("I"):
                self.seen.append("")  # the template itself
                while not self._took("E"):
                    self.template.append(self._value() if self._took("L") else self._one())
                self._one()  # what the instance returns
            found = []
            while self.text:
                found.append(self._one())
        except (LookupError, ValueError):
            return None
        return [] if found == ["void"] else found

    def _took(self, start: str) -> bool:
        if not self.text.startswith(start):
            return False
        self.text = self.text[len(start) :]
        return True

    def _value(self) -> str:
        end = self.text.index("E")
        value, self.text = self.text[1:end], self.text[end + 1 :]
        return value

    def _one(self) -> str:
        first = self.text[0]
        if first in _BUILTIN:
            self.text = self.text[1:]
            return _BUILTIN[first]
        if first == "S":
            match = re.match(r"S([0-9A-Z]*)_", self.text)
            return self.seen[self._number(match, 36)]
        if first == "T":
            match = re.match(r"T([0-9]*)_", self.text)
            found = self.template[self._number(match, 10)]
        elif first in "PRK":
            self.text = self.text[1:]
            inner = self._one()
            found = inner if first == "K" else f"{inner}*"
        elif length := re.match(r"\d+", self.text):
            end = length.end() + int(length[0])
            found, self.text = self.text[length.end() : end], self.text[end:]
        else:
            raise ValueError(self.text)
        self.seen.append(found)
        return found

    def _number(self, match: re.Match[str] | None, base: int) -> int:
        if match is None:
            raise ValueError(self.text)
        self.text = self.text[match.end() :]
        return int(match[1], base) + 1 if match[1] else 0


_NUMBERED = re.compile(r"%(\d+)\b")
"Values without a name: lines may go without renumbering the rest once all have one."
_CONSTANT = re.compile(
    r"ptr addrspace\(4\) addrspacecast \(ptr addrspace\((\d)\) (@[\w.$]+) to ptr addrspace\(4\)\)"
)
_ELEMENT = re.compile(
    r"ptr addrspace\(4\) (getelementptr (?:inbounds )?\([^()]*?, ptr addrspace\((?!4\))(\d)\) @)"
)
_CAST = re.compile(r"  (%[\w.]+) = addrspacecast ptr addrspace\((\d)\) (%[\w.]+) to ptr addrspace\(4\)$")
_PLACE = re.compile(r"  (%[\w.]+) = getelementptr [^\n]*?, ptr addrspace\((?!4\))(\d)\) [%@g]")
_ACCESS = re.compile(r"^  (?:%[\w.]+ = )?(?:tail )?(?:load|store|getelementptr|atomicrmw|cmpxchg)\b")


def _spaces_told(ir: str) -> str:
    """IR whose accesses name the address space of what they reach, wherever the code shows it.

    CUDA's pointers are generic; a pointer that is made from an argument or from shared memory is not.
    """
    lines: list[str] = []
    body: list[str] = []
    inside = False
    for line in ir.split("\n"):
        if line.startswith(("@llvm.compiler.used", "@llvm.used")):
            continue
        if line.startswith("}") and inside:
            lines += [*_function_told(body), line]
            body, inside = [], False
        elif inside:
            body.append(line)
        else:
            lines.append(line)
            if inside := line.startswith("define "):
                lines[-1] = _NUMBERED.sub(r"%v.\1", line)
    told = "\n".join([*lines, *body])
    if f"call spir_func noundef i64 @{_GLOBAL_ID}(" in told:
        told = told.replace(
            "\nattributes ", f"\ndeclare spir_func noundef i64 @{_GLOBAL_ID}(i32 noundef)\n\nattributes ", 1
        )
    return told


def _function_told(body: list[str]) -> list[str]:
    known: dict[str, tuple[str, str]] = {}  # a generic pointer: the space it is in, and its name there
    told: list[str] = []
    for line in (_NUMBERED.sub(r"%v.\1", each) for each in body):
        if _ACCESS.match(line):
            line = _CONSTANT.sub(r"ptr addrspace(\1) \2", line)
            line = _ELEMENT.sub(r"ptr addrspace(\2) \1", line)
            line = re.sub(
                r"ptr addrspace\(4\) (%[\w.]+)(?=,|$)",
                lambda match: (
                    "ptr addrspace({}) {}".format(*known[match[1]]) if match[1] in known else match[0]
                ),
                line,
            )
        told.append(line)
        if cast := _CAST.match(line):
            known[cast[1]] = (cast[2], cast[3])
        elif (place := _PLACE.match(line)) and "<" not in line.partition(",")[0]:
            name, space = place[1], place[2]
            inner = f"{name}.in"
            told[-1] = line.replace(name, inner, 1)
            told.append(f"  {name} = addrspacecast ptr addrspace({space}) {inner} to ptr addrspace(4)")
            known[name] = (space, inner)
    return _global_ids_told(_without_idle_casts(told))


def _without_idle_casts(body: list[str]) -> list[str]:
    used = Counter(re.findall(r"%[\w.]+", "\n".join(body)))
    return [line for line in body if not ((cast := _CAST.match(line)) and used[cast[1]] == 1)]


_QUERY = re.compile(r"  (%[\w.]+) = tail call spir_func noundef i64 @_Z\d+(get_\w+?)j\(i32 noundef (\d)\)")
_NARROWED = re.compile(r"  (%[\w.]+) = trunc i64 (%[\w.]+) to i32$")
_PRODUCT = re.compile(r"  (%[\w.]+) = mul (?:nuw |nsw )*i32 (%[\w.]+), (%[\w.]+)$")
_SUM = re.compile(r"  (%[\w.]+) = add (?:nuw |nsw )*i32 (%[\w.]+), (%[\w.]+)$")
_GLOBAL_ID = "_Z13get_global_idj"


def _global_ids_told(body: list[str]) -> list[str]:
    """The lines of a function, where `blockIdx.x * blockDim.x + threadIdx.x` is a call of `get_global_id`."""
    asked: dict[str, tuple[str, str]] = {}  # a value: the query it is the answer of, and the dimension
    told: list[str] = []
    for line in body:
        told.append(line)
        if query := _QUERY.match(line):
            asked[query[1]] = (query[2], query[3])
        elif (narrowed := _NARROWED.match(line)) and narrowed[2] in asked:
            asked[narrowed[1]] = asked[narrowed[2]]
        elif product := _PRODUCT.match(line):
            factors = {asked.get(product[2]), asked.get(product[3])}
            for dimension in "012":
                if factors == {("get_group_id", dimension), ("get_local_size", dimension)}:
                    asked[product[1]] = ("start", dimension)
        elif total := _SUM.match(line):
            terms = {asked.get(total[2]), asked.get(total[3])}
            for dimension in "012":
                if terms == {("start", dimension), ("get_local_id", dimension)}:
                    call = f"tail call spir_func noundef i64 @{_GLOBAL_ID}(i32 noundef {dimension})"
                    told[-1:] = [
                        f"  {total[1]}.wide = {call}",
                        f"  {total[1]} = trunc i64 {total[1]}.wide to i32",
                    ]
    if len(told) == len(body):
        return body
    while True:  # what only led to the sum is no longer needed
        used = Counter(re.findall(r"%[\w.]+", "\n".join(told)))
        kept = [
            line
            for line in told
            if not (
                (made := _QUERY.match(line) or _NARROWED.match(line) or _PRODUCT.match(line))
                and made[1] in asked
                and used[made[1]] == 1
            )
        ]
        if len(kept) == len(told):
            return kept
        told = kept
