"""LLVM bitcode → LLVM IR text, by llvmlite, in a child process: damaged bitcode can crash LLVM."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path

from apportion.errors import DeadlineExceeded, LimitExceeded, MalformedIR, MissingPackage, WorkerCrashed
from apportion.jobs import child
from apportion.program import ircache
from apportion.program.compile import CompileOptions, limits_of, renamed
from apportion.program.source import Source

_MALFORMED = 3  # the child's exit status when LLVM refuses its input

# llvmlite is loaded from its place rather than found on a search path, so that the child needs no right to
# the rest of site-packages. Each module has a context of its own: in a shared one, structures get new names
# (`%struct.node.621`) that depend on what was read before.
_SCRIPT = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("llvmlite", sys.argv[1])
sys.modules["llvmlite"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
import llvmlite.binding as llvm
data = sys.stdin.buffer.read()
try:
    module = llvm.parse_bitcode(data, context=llvm.create_context())
except RuntimeError as error:
    sys.stderr.write(str(error))
    sys.exit({_MALFORMED})
sys.stdout.buffer.write(str(module).encode("utf-8", "replace"))
"""


def text_of(source: Source, options: CompileOptions) -> str:
    """The IR of a bitcode source, as the LLVM of llvmlite prints it (typed pointers become `ptr`).

    Raises:
        MissingPackage: llvmlite is not installed.
        MalformedIR: it is not bitcode that this LLVM can read.
        DeadlineExceeded, LimitExceeded, WorkerCrashed: LLVM came to no end, or to a bad one.
    """
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        raise MissingPackage("llvmlite", "bitcode", "Reading LLVM bitcode")
    version = importlib.metadata.version("llvmlite")
    key = ircache.key_of(["bitcode", f"llvmlite {version}", source.name, source.data])
    kept = ircache.load(key)
    if kept is not None:
        return kept
    package = Path(spec.origin).parent
    try:
        done = child.run(
            [os.path.realpath(sys.executable), "-I", "-S", "-c", _SCRIPT, spec.origin],
            stdin=source.data,
            limits=limits_of(options),
            programs=[*_PYTHON, package, package.with_name("llvmlite.libs")],
        )
    except (DeadlineExceeded, LimitExceeded) as error:
        raise type(error)(
            f"Reading the bitcode {source.name}: {error}. Raise the limit to allow it."
        ) from error
    except WorkerCrashed as error:
        raise WorkerCrashed(f"LLVM crashed on the bitcode {source.name}; it is damaged ({error})") from error
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode == _MALFORMED:
        raise MalformedIR(f"LLVM cannot read this bitcode: {' '.join(said.split())}", file=source.name)
    if done.returncode != 0:
        raise WorkerCrashed(
            f"llvmlite {version} failed on the bitcode {source.name}: {said.splitlines()[-1:]}"
        )
    text = renamed(done.stdout.decode(), source.name)
    ircache.store(key, text)
    return text


_PYTHON = [
    Path(path)
    for path in {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        os.path.join(sys.base_prefix, "lib"),
        "/usr/lib",
        "/lib",
        "/lib64",
        "/etc/ld.so.cache",
    }
    if path
]
"What a bare Python needs in order to start."
