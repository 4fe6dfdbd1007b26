"""The processor that PoCL's compiler takes this machine for, where its LLVM is older than the processor.

The wheel's PoCL asks LLVM 14 for the processor's name and hands it to clang. For a processor that LLVM does
not know, an AMD Zen 5 for one, the name is `generic`, which clang refuses: nothing can be compiled. A copy of
the library that names the level of the x86-64 instruction set instead (`x86-64-v4`) compiles everything.
"""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from apportion.settings import cache_folder, replace_file

UNKNOWN = "generic"
"What LLVM calls a processor that it does not know."

_LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"},
    "x86-64-v2": {"cx16", "popcnt", "ssse3", "sse4_1", "sse4_2"},
    "x86-64": set(),
}  # fmt: skip
"Name of a level → flags of /proc/cpuinfo that it needs beyond those of the levels below, highest first."
_ASK = """
import ctypes, sys
name_of = ctypes.CDLL(sys.argv[1]).pocl_get_llvm_cpu_name
name_of.restype = ctypes.c_char_p
print(name_of().decode())
"""
_ASK_SECONDS = 60
# pocl_get_llvm_cpu_name: `test rdx,rdx; je fallback` … `fallback: mov edi,8; mov ebx,7; lea rbp,["generic"];
# jmp back`, and then bytes that only align the next function, where a name finds room.
_FUNCTION = re.compile(
    rb"\x48\x85\xd2(?P<test>\x74)\x30.{48}\xbf(?P<room>\x08)\x00\x00\x00\xbb(?P<length>\x07)\x00\x00\x00"
    rb"\x48\x8d\x2d(?P<place>.{4})\xeb.(?P<name>\x66\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00\x66\x90)",
    re.DOTALL,
)
_ALWAYS = b"\xeb"  # `jmp` in place of `je`


def replacement_for(library: Path) -> str | None:
    """The name that a copy of this PoCL must give the processor; None where its own is fine."""
    if platform.machine() != "x86_64":
        return None
    return level_of(_flags()) if _name_by(library) == UNKNOWN else None


def level_of(flags: set[str]) -> str:
    """The highest level of the x86-64 instruction set that a processor with these flags has."""
    names = list(_LEVELS)
    return next(name for at, name in enumerate(names) if all(_LEVELS[lower] <= flags for lower in names[at:]))


def renamed(data: bytes, name: str) -> bytes:
    """A PoCL library that calls the processor by this name; unchanged where it is not the one we know."""
    found = _FUNCTION.search(data)
    word = name.encode() + b"\0"
    if found is None or len(word) > len(found["name"]):
        return data
    changed = bytearray(data)
    after_lea = found.end("place")
    for group, value in {
        "test": _ALWAYS,
        "room": bytes([len(word)]),
        "length": bytes([len(word) - 1]),
        "place": (found.start("name") - after_lea).to_bytes(4, "little", signed=True),
        "name": word.ljust(len(found["name"]), b"\0"),
    }.items():
        changed[found.start(group) : found.end(group)] = value
    return bytes(changed)


def _name_by(library: Path) -> str:
    """What a PoCL library calls this processor: it is asked once, in a process of its own, and remembered."""
    status = library.stat()
    identity = f"{library.resolve()}:{status.st_size}:{status.st_mtime_ns}:{_model()}"
    kept = cache_folder("drivers") / f"processor-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    with suppress(OSError):
        return kept.read_text()
    try:
        said = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _ASK, str(library)],
            capture_output=True, text=True, timeout=_ASK_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    name = said.stdout.strip()
    if said.returncode == 0 and name:
        with suppress(OSError):
            replace_file(kept, name.encode())
    return name


def _model() -> str:
    """The lines of /proc/cpuinfo that tell one processor model from another."""
    return " ".join(_first(key) for key in ("vendor_id", "cpu family", "model", "stepping", "flags"))


def _flags() -> set[str]:
    return set(_first("flags").split())


def _first(key: str) -> str:
    with suppress(OSError):
        found = re.search(rf"^{key}\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return found[1] if found else ""
    return ""
