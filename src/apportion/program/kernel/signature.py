"""Kernel names, argument types, address spaces and qualifiers, from LLVM IR and the source it came from."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from apportion.errors import MalformedIR, UnknownName
from apportion.program.kernel.instructions import IRFunction, IRModule, read_module, split_top

SPACES = {0: "value", 1: "global", 2: "constant", 3: "local", 4: "generic"}
"OpenCL's address spaces as spir64 numbers them; an argument in space 0 is passed by value."

_SCALARS = {
    "char": "int8", "uchar": "uint8", "short": "int16", "ushort": "uint16", "int": "int32", "uint": "uint32",
    "long": "int64", "ulong": "uint64", "half": "float16", "float": "float32", "double": "float64",
    "bool": "uint8", "size_t": "uint64", "unsigned char": "uint8", "unsigned short": "uint16",
    "unsigned int": "uint32", "unsigned long": "uint64", "ptrdiff_t": "int64", "intptr_t": "int64",
    "uintptr_t": "uint64", "atomic_int": "int32", "atomic_uint": "uint32", "atomic_long": "int64",
    "atomic_ulong": "uint64", "_Atomic(int)": "int32", "_Atomic(unsigned int)": "uint32",
    "_Atomic(uint)": "uint32", "_Atomic(long)": "int64", "_Atomic(ulong)": "uint64",
}  # fmt: skip


@dataclass(frozen=True)
class KernelArgument:
    """One argument of a kernel."""

    index: int
    name: str
    type: str
    "As OpenCL names it: `float*`, `uint`, `float4*`."
    space: str
    "`value`, `global`, `constant` or `local`."
    access: str = "none"
    "`read_only`, `write_only` or `read_write` for images and pipes, else `none`."
    qualifiers: tuple[str, ...] = ()
    "`const`, `restrict`, `volatile`, in the order they are recorded."
    element_bytes: int = 0
    "The bytes of one element (of the value itself, for one passed by value); 0 where unknown."
    fields: tuple[tuple[str, int], ...] = ()
    "Of a structure: NumPy's name of each single value in an element, and the byte where it starts."

    image_format: str = ""
    "Of an image: what the kernel reads and writes suggests `rgba32f`, `rgba32i` or `rgba32u`."

    @property
    def is_pointer(self) -> bool:
        """Whether the argument is memory rather than a value."""
        return self.space != "value"

    @property
    def is_supported(self) -> bool:
        """Whether the runtime can pass such an argument; pipes, queues and some images it cannot."""
        if self.is_image:
            return (
                re.fullmatch(r"image(?:1d|1d_buffer|1d_array|2d|2d_array|3d)_t", self.bare_type) is not None
            )
        return not re.search(r"\b(?:pipe|event_t|clk_event_t|queue_t|reserve_id_t)\b", self.type)

    @property
    def bare_type(self) -> str:
        """The type without its qualifiers."""
        return re.sub(r"\b(?:__)?(?:read_only|write_only|read_write)\b", "", self.type).strip()

    @property
    def is_image(self) -> bool:
        """Whether it is an image, which kernels read and write by coordinates."""
        return self.bare_type.startswith("image")

    @property
    def is_sampler(self) -> bool:
        """Whether it says how images are read."""
        return self.bare_type == "sampler_t"

    @property
    def scalar_type(self) -> str | None:
        """NumPy's name for one component of an element (`float32` for `float4*`), or None for a struct."""
        bare = self.type.rstrip("*").strip()
        if bare in _SCALARS:
            return _SCALARS[bare]
        vector = re.fullmatch(r"([a-z ]+?)(2|3|4|8|16)", bare)
        return _SCALARS.get(vector[1]) if vector else None

    @property
    def components(self) -> int:
        """Components of an element: 4 for `float4*`; a vector of three takes the place of four."""
        vector = re.fullmatch(r"[a-z ]+?(2|3|4|8|16)", self.type.rstrip("*").strip())
        return {"3": 4}.get(vector[1], int(vector[1])) if vector else 1


@dataclass(frozen=True)
class Signature:
    """A kernel as its caller sees it."""

    name: str
    arguments: tuple[KernelArgument, ...]
    required_local_size: tuple[int, ...] | None = None
    "The work-group size that the kernel was compiled for, where it says."

    def argument(self, name: str) -> KernelArgument:
        """The argument called `name`.

        Raises:
            UnknownName: there is none; the message lists those there are.
        """
        for argument in self.arguments:
            if argument.name == name:
                return argument
        raise UnknownName("argument", name, [argument.name for argument in self.arguments])


def signatures_of(ir: str | IRModule, source: str = "") -> dict[str, Signature]:
    """The kernels of a module by name, in the order they are written.

    Args:
        ir: LLVM IR of OpenCL C, for spir64.
        source: the OpenCL C it came from; the names of arguments stand only there.
    """
    module = ir if isinstance(ir, IRModule) else read_module(ir)
    return {kernel.name: _signature(module, kernel, source) for kernel in module.kernels}


def signature_of(ir: str | IRModule, kernel: str | None = None, source: str = "") -> Signature:
    """The signature of one kernel; of the only one, where none is named.

    Raises:
        UnknownName: no such kernel, or no name was given and there are several.
        MalformedIR: the module has no kernel.
    """
    known = signatures_of(ir, source)
    if not known:
        raise MalformedIR("There is no OpenCL kernel in this module; write one, or check the language")
    if kernel is None and len(known) == 1:
        return next(iter(known.values()))
    if kernel is None or kernel not in known:
        raise UnknownName("kernel", kernel or "", known)
    return known[kernel]


def _signature(module: IRModule, kernel: IRFunction, source: str) -> Signature:
    spaces = _numbers(module, kernel, "kernel_arg_addr_space")
    kinds = _strings(module, kernel, "kernel_arg_type")
    bases = _strings(module, kernel, "kernel_arg_base_type")
    accesses = _strings(module, kernel, "kernel_arg_access_qual")
    qualifiers = _strings(module, kernel, "kernel_arg_type_qual")
    names = _strings(module, kernel, "kernel_arg_name") or _names_in(source, kernel.name)
    count = len(kernel.parameters)
    if len(names) != count:
        names = [f"arg{position}" for position in range(count)]
    arguments = []
    for position in range(count):
        space = (
            SPACES.get(spaces[position], "generic") if position < len(spaces) else _space(kernel, position)
        )
        # A typedef's own name says nothing of its size; the base type does.
        kind = kinds[position] if position < len(kinds) else kernel.parameter_types[position]
        if position < len(bases) and _unknown(kind) and not _unknown(_plain(bases[position])):
            kind = _plain(bases[position])
        words = tuple(qualifiers[position].split()) if position < len(qualifiers) else ()
        if "pipe" in words:  # the type is that of what it carries
            kind = f"pipe {kind}"
        argument = KernelArgument(
            index=position,
            name=names[position],
            type=kind,
            space=space,
            access=accesses[position] if position < len(accesses) else "none",
            qualifiers=words,
        )
        arguments.append(_sized(module, kernel, argument))
    required = tuple(_numbers(module, kernel, "reqd_work_group_size")) or None
    return Signature(kernel.name, tuple(arguments), required)


def _sized(module: IRModule, kernel: IRFunction, argument: KernelArgument) -> KernelArgument:
    if (scalar := argument.scalar_type) is not None:
        return replace(argument, element_bytes=int(scalar.lstrip("uintfloa")) // 8 * argument.components)
    kind: str | None
    if argument.is_image:
        return replace(argument, image_format=_image_format(kernel, argument.index))
    if argument.is_sampler:
        return argument
    if not argument.is_pointer and not argument.type.endswith("*"):
        kind = kernel.by_value.get(argument.index, kernel.parameter_types[argument.index])
    else:
        kind = _structure(module, argument.type)
    try:
        if kind is None:
            return argument
        return replace(argument, element_bytes=module.bytes_of(kind), fields=_fields(module, kind))
    except MalformedIR:
        return argument


def _structure(module: IRModule, pointer: str) -> str | None:
    """The module's type of what a pointer to a structure points to; None where the module does not say."""
    name = re.sub(r"\b(?:struct|union|class|const|volatile)\b", "", pointer.rstrip("*")).strip()
    found = [
        kind for kind in (f"%{word}.{name}" for word in ("struct", "union", "class")) if kind in module.types
    ]
    return found[0] if found else None


_NUMPY = {"half": "float16", "float": "float32", "double": "float64"}


def _fields(module: IRModule, kind: str) -> tuple[tuple[str, int], ...]:
    """The values in a structure; pointers count as integers of their size."""
    found = []
    for scalar, offset in module.scalars_of(kind):
        bits = re.fullmatch(r"i(\d+)", scalar)
        whole = 8 * module.bytes_of(scalar) if bits else 64
        found.append((_NUMPY.get(scalar, f"int{whole}"), offset))
    return tuple(found)


_TEXELS = re.compile(r"_Z\d+(?:read|write)_image(f|h|i|ui)\d")


def _image_format(kernel: IRFunction, index: int) -> str:
    """A format that the kernel can read or write."""
    name = kernel.parameters[index]
    for instruction in kernel.instructions:
        match = _TEXELS.match(instruction.callee)
        if match and instruction.operands and instruction.operands[0] == name:
            return {"f": "rgba32f", "h": "rgba16f", "i": "rgba32i", "ui": "rgba32u"}[match[1]]
    return ""


def _unknown(kind: str) -> bool:
    return KernelArgument(0, "", kind, "value").scalar_type is None


def _plain(base: str) -> str:
    """`float __attribute__((ext_vector_type(4)))*` → `float4*`."""
    return re.sub(r"\s*__attribute__\(\(ext_vector_type\((\d+)\)\)\)", r"\1", base)


def _space(kernel: IRFunction, position: int) -> str:
    match = re.search(r"addrspace\((\d+)\)", kernel.parameter_types[position])
    return SPACES.get(int(match[1]), "generic") if match else "value"


def _strings(module: IRModule, kernel: IRFunction, attachment: str) -> list[str]:
    node = module.metadata.get(kernel.metadata.get(attachment, ""), "")
    return re.findall(r'!"([^"]*)"', node)


def _numbers(module: IRModule, kernel: IRFunction, attachment: str) -> list[int]:
    node = module.metadata.get(kernel.metadata.get(attachment, ""), "")
    return [int(number) for number in re.findall(r"i32 (-?\d+)", node)]


def _names_in(source: str, kernel: str) -> list[str]:
    """Argument names as the source writes them; empty where macros hide them."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    match = re.search(
        rf"\bvoid\s+(?:__attribute__\s*\(\(.*?\)\)\s*)?{re.escape(kernel)}\s*\(", text, re.DOTALL
    )
    if match is None:
        return []
    depth = 1
    for position in range(match.end(), len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0:
            break
    else:
        return []
    names = []
    for parameter in split_top(text[match.end() : position]):
        found = re.findall(r"[A-Za-z_]\w*", re.sub(r"\[.*?\]|__attribute__\s*\(\(.*?\)\)", "", parameter))
        names.append(found[-1] if found else "")
    return [] if names == ["void"] or "" in names or len(set(names)) != len(names) else names
