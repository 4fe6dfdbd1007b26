"""SPIR-V: modules of kernels → LLVM IR, by the translator that `pip install 'apportion[spirv]'` brings.

It is Intel's `llvm-spirv`, the one of its oneAPI compilers, under Intel's licence; what it writes is read as
bitcode. SPIR-V is compiled code: there are no lines of a source to speak of.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from apportion.errors import (
    DeadlineExceeded,
    LimitExceeded,
    MalformedInput,
    MissingPackage,
    WorkerCrashed,
)
from apportion.jobs import child
from apportion.program import bitcode, ircache
from apportion.program.compile import limits_of, renamed
from apportion.program.source import Source

if TYPE_CHECKING:
    from apportion.program.compile import CompileOptions

_SYSTEM = [Path(path) for path in ("/usr/lib", "/lib", "/lib64", "/etc/ld.so.cache")]


def text_of(source: Source, options: CompileOptions) -> str:
    """The IR of a SPIR-V module.

    Raises:
        MissingPackage: the translator, or llvmlite, is not installed.
        MalformedInput: it is no module of kernels that the translator can read.
        DeadlineExceeded, LimitExceeded, WorkerCrashed: the translator came to no end, or to a bad one.
    """
    spec = importlib.util.find_spec("dpcpp_llvm_spirv")
    if spec is None or spec.origin is None:
        raise MissingPackage("dpcpp-llvm-spirv", "spirv", "Reading SPIR-V")
    package = Path(spec.origin).parent
    version = importlib.metadata.version("dpcpp-llvm-spirv")
    key = ircache.key_of(["spirv", version, source.name, source.data])
    if (kept := ircache.load(key)) is not None:
        return kept
    with tempfile.TemporaryDirectory(prefix="apportion-spirv-") as folder:
        module = Path(folder, "module.spv")  # the translator reads files, and no pipes
        module.write_bytes(source.data)
        try:
            done = child.run(
                [str(package / "bin" / "llvm-spirv"), "-r", str(module), "-o", "-"],
                limits=limits_of(options),
                programs=[package, *(path for path in _SYSTEM if path.exists())],
                readable=[module],
            )
        except (DeadlineExceeded, LimitExceeded) as error:
            raise type(error)(f"Reading the SPIR-V of {source.name}: {error}. Raise the limit.") from error
        except WorkerCrashed as error:
            raise WorkerCrashed(f"The translator of SPIR-V crashed on {source.name}: {error}") from error
    said = " ".join(done.stderr.decode(errors="replace").split())
    if done.returncode != 0 or not done.stdout:
        raise MalformedInput(f"no SPIR-V that can be read: {said or 'nothing came out'}", file=source.name)
    text = renamed(bitcode.text_of(Source(done.stdout, "bitcode", source.name), options), source.name)
    ircache.store(key, text)
    return text
