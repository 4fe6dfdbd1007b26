"""What a stranger's kernel may not hold if it is to run: code that no check of the source can see through.

Drivers compile a kernel once more, and see other macros than our compiler did: `#if __clang_major__ != 18`
hides from us whatever it likes. Inline assembly does what OpenCL C cannot: system calls. Whoever trusts the
source says so (`--trust-source`); the cage (`jobs.cage`) holds in any case.
"""

from __future__ import annotations

import re

from apportion.errors import CompileError
from apportion.program.includes import can_be_pasted, plain_text

_ASSEMBLY = re.compile(
    r"\b(?:asm|__asm|__asm__|_asm)\b(?=[^\S\n]*+(?:[({]|volatile\b|__volatile__\b|goto\b|\n|$))"
)
_IN_IR = re.compile(r'^module asm |\basm (?:sideeffect |alignstack |inteldialect |unwind )*"', re.MULTILINE)
_CONDITION = re.compile(
    r"^[^\S\n]*+(?:\#|%:|\?\?=)[^\S\n]*+(?:if|ifdef|ifndef|elif|elifdef|elifndef)\b([^\n]*)", re.MULTILINE
)
_DEFINITION = re.compile(r"^[^\S\n]*+(?:\#|%:|\?\?=)[^\S\n]*+(?:define|undef)[^\S\n]++(\w+)", re.MULTILINE)
_NAME = re.compile(r"\b[A-Za-z_]\w*")
_OF_COMPILERS = re.compile(
    r"__(?!OPENCL_(?:C_|CPP_)?VERSION__$|IMAGE_SUPPORT__$|ENDIAN_LITTLE__$|FAST_RELAXED_MATH__$)"
    r"(?!opencl_c_|cplusplus$)|_(?:MSC_VER|WIN32|WIN64|ARCH_)|(?:POCL|NV_|INTEL_|APPLE|unix$|linux$)"
)
"""How names begin that say which compiler or processor this is; those of OpenCL's own standard say what a
kernel may use, and are the same question to every driver."""


def check_runnable(text: str, ir: str, name: str) -> None:
    """Refuse inline assembly, and conditions on which compiler reads the source.

    Args:
        text: the source.
        ir: what our compiler made of it.

    Raises:
        CompileError: at the line of the first one.
    """
    plain, line_of = plain_text(text)
    found = _ASSEMBLY.search(plain)
    if found is not None:
        raise _refused("inline assembly", name, line_of(found.start()))
    if _IN_IR.search(ir):
        raise _refused("inline assembly", name, None)
    if any(can_be_pasted(word, plain) for word in ("__asm", "__asm__", "_Pragma")):
        raise _refused("macros that can spell inline assembly", name, None)
    defined = {match[1] for match in _DEFINITION.finditer(plain)}
    for condition in _CONDITION.finditer(plain):
        for word in _NAME.findall(condition[1]):
            if word not in defined and _OF_COMPILERS.match(word):
                raise _refused(f"code for some compilers only ({word})", name, line_of(condition.start()))


def _refused(what: str, name: str, line: int | None) -> CompileError:
    return CompileError(
        f"The source has {what}, which is not run for a stranger. Is it your own, or do you trust whoever "
        "wrote it? Then add --trust-source",
        file=name,
        line=line,
    )
