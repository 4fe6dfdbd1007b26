"""JAX functions → HLO: lowered for arrays of given shapes, never run.

JAX is asked to look for no accelerator unless the user's environment says otherwise: lowering needs none, and
its GPU client would take most of the memory there.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from apportion.errors import InvalidSetting, MissingPackage, UnreadableFile

ELEMENTS = {
    "pred": "bool", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64", "u8": "uint8",
    "u16": "uint16", "u32": "uint32", "u64": "uint64", "f16": "float16", "bf16": "bfloat16",
    "f32": "float32", "f64": "float64", "c64": "complex64",
}  # fmt: skip
"Element types as HLO writes them → as NumPy does."

_SPEC = re.compile(r"\s*([a-z]+\d*)\s*\[\s*([\d\s,]*)\]\s*")

Spec = tuple[tuple[int, ...], str]
"Dimensions and NumPy's name of the element type."


def jax() -> Any:
    """The package.

    Raises:
        MissingPackage: it is not installed.
    """
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise MissingPackage("jax", "jax", "Lowering a JAX function") from error


def spec_of(text: str) -> Spec:
    """A shape as HLO writes it: `f32[128,256]`.

    Raises:
        InvalidSetting: it is none.
    """
    found = _SPEC.fullmatch(text)
    if found is None or found[1] not in ELEMENTS:
        raise InvalidSetting(f"{text!r} is no shape. Write the type and the dimensions: f32[128,256]")
    return tuple(int(size) for size in found[2].split(",") if size.strip()), ELEMENTS[found[1]]


def text_of(spec: Spec) -> str:
    """The inverse of `spec_of`."""
    dims, element = spec
    kind = next(name for name, known in ELEMENTS.items() if known == element)
    return f"{kind}[{','.join(map(str, dims))}]"


def function_of(target: str) -> Callable[..., Any]:
    """The function called `module:function` or `path/to/file.py:function`.

    Raises:
        InvalidSetting: it is not written so, or the module has no such function.
        UnreadableFile: there is no such module or file.
    """
    found = object_of(target)
    if not callable(found):
        raise InvalidSetting(f"{target} is no function")
    return found  # type: ignore[no-any-return]


def object_of(target: str) -> Any:
    """What a module or a file calls so; see `function_of`."""
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise InvalidSetting(f"{target!r} is not written module:function or file.py:function")
    try:
        if place.endswith(".py"):
            if not Path(place).is_file():
                raise UnreadableFile(f"There is no file {place}")
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules.setdefault(Path(place).stem, module)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise UnreadableFile(f"Cannot import {place}: {error}") from error
    if not hasattr(module, name):
        raise InvalidSetting(f"{place} has no {name!r}")
    return getattr(module, name)


def hlo_of(function: Callable[..., Any], specs: Sequence[Spec], *, optimised: bool = False) -> bytes:
    """The serialized HloModuleProto of a function of arrays with these shapes.

    Args:
        function: takes one array for each spec; jitted or not.
        specs: what it is lowered for.
        optimised: as XLA's compiler on this machine leaves it, rather than as it comes.

    Raises:
        InvalidSetting: the function does not take such arrays; the message has JAX's own words.
        MissingPackage: JAX is not installed.
    """
    package = jax()
    shapes = [package.ShapeDtypeStruct(dims, element) for dims, element in specs]
    try:
        lowered = package.jit(function).lower(*shapes)
        if optimised:
            module = lowered.compile().runtime_executable().hlo_modules()[0]
        else:
            module = lowered.compiler_ir("hlo").as_hlo_module()
        data: bytes = module.as_serialized_hlo_module_proto()
    except (TypeError, ValueError) as error:
        name = getattr(function, "__name__", "the function")
        first = str(error).strip().splitlines()[0]
        raise InvalidSetting(f"JAX cannot lower {name} for such arrays: {first}") from error
    return data
