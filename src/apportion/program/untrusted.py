"""What a stranger's kernel may not hold if it is to run: code that no check of the source can see through.

Drivers compile a kernel once more, and see other macros than our compiler did: `#if __clang_major__ != 18`
hides from us whatever it likes. Inline assembly does what OpenCL C cannot: system calls. Whoever trusts the
source says so (`--trust-source`); the cage (`jobs.cage`) holds in any case.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from apportion.errors import CompileError
from apportion.program.includes import can_be_pasted, plain_texts

_ASSEMBLY = re.compile(r"\b_{0,2}asm(?:__)?\b")
"A macro may stand between it and what it begins; as a name of a variable it is refused, too."
_IN_IR = re.compile(r'^module asm |\basm (?:sideeffect |alignstack |inteldialect |unwind )*"', re.MULTILINE)
_DIRECTIVE = r"^[^\S\n]*+(?:\#|%:|\?\?=)[^\S\n]*+"
_CONDITION = re.compile(_DIRECTIVE + r"(?:if|ifdef|ifndef|elif|elifdef|elifndef)\b([^\n]*)", re.MULTILINE)
_DEFINITION = re.compile(_DIRECTIVE + r"(?:define|undef)[^\S\n]++(\w+)([^\n]*)", re.MULTILINE)
_NAME = re.compile(r"\b[A-Za-z_]\w*")
_OF_COMPILERS = re.compile(
    r"__(?!OPENCL_(?:C_|CPP_)?VERSION__$|IMAGE_SUPPORT__$|ENDIAN_LITTLE__$|FAST_RELAXED_MATH__$)"
    r"(?!opencl_c_|cplusplus$)|_(?:MSC_VER|WIN32|WIN64|ARCH_)|(?:POCL|NV_|INTEL_|APPLE|unix$|linux$)"
)
"""How names begin that say which compiler or processor this is; those of OpenCL's own standard say what a
kernel may use, and are the same question to every driver."""
_TELLS_COMPILERS_APART = re.compile(
    r"\b(?:__(?:clang|llvm|GNU[CG]_|has_|is_identifier|building_module|CUDA_|NVCC|NVPTX|AMDGCN|AMDGPU|HIP_|SYCL_|INTEL_"
    r"|POCL|APPLE|SPIRV?__|SPIR(?:32|64))\w*|__(?:x86_64|amd64|i[3-7]86|linux|unix)(?:__)?\b"
    r"|__(?:VERSION|aarch64|arm|riscv|ELF|MACH|OPTIMIZE|PTX|ICC|ICL|MMX|FMA|BMI2?|SSE\w*|AVX\w*|COUNTER|INCLUDE_LEVEL"
    r"|TIMESTAMP|BASE_FILE)__\b|_MSC_VER\b|_WIN(?:32|64)\b)"
)
"What compilers define by themselves, each to another value: refused outside conditions, too."


def check_runnable(text: str, ir: str, name: str) -> None:
    """Refuse inline assembly, and code that depends on which compiler reads the source.

    Args:
        text: the source.
        ir: what our compiler made of it.

    Raises:
        CompileError: at the line of the first one.
    """
    if _IN_IR.search(ir):
        for plain, line_of in plain_texts(text):
            _check_assembly(plain, line_of, name)
        raise _refused("inline assembly", name, None)
    for plain, line_of in plain_texts(text):
        _check_assembly(plain, line_of, name)
        _check_conditions(plain, line_of, name)


def _check_assembly(plain: str, line_of: Callable[[int], int], name: str) -> None:
    found = _ASSEMBLY.search(plain)
    if found is not None:
        raise _refused("inline assembly", name, line_of(found.start()))
    if any(can_be_pasted(word, plain) for word in ("_asm", "__asm", "__asm__", "_Pragma")):
        raise _refused("macros that can spell inline assembly", name, None)


def _check_conditions(plain: str, line_of: Callable[[int], int], name: str) -> None:
    found = _TELLS_COMPILERS_APART.search(plain)
    if found is not None:
        raise _refused(f"code for some compilers only ({found[0]})", name, line_of(found.start()))
    means: dict[str, set[str]] = {}
    "Each macro of the source → the names in whatever it is defined to be."
    for definition in _DEFINITION.finditer(plain):
        means.setdefault(definition[1], set()).update(_NAME.findall(definition[2]))
    asked: dict[str, int] = {}
    for condition in _CONDITION.finditer(plain):
        for word in _NAME.findall(condition[1]):
            asked.setdefault(word, condition.start())
    waiting = list(asked)
    while waiting:
        word = waiting.pop()
        if word not in means and _OF_COMPILERS.match(word):
            raise _refused(f"code for some compilers only ({word})", name, line_of(asked[word]))
        for inner in means.get(word, ()):
            if inner not in asked:
                asked[inner] = asked[word]
                waiting.append(inner)


def _refused(what: str, name: str, line: int | None) -> CompileError:
    return CompileError(
        f"The source has {what}, which is not run for a stranger. Is it your own, or do you trust whoever "
        "wrote it? Then add --trust-source",
        file=name,
        line=line,
    )
