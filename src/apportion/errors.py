"""Every error that apportion raises on purpose.

Each also derives from the builtin a caller would expect, so one class gives a Python error, a one-line
message of the command line and an HTTP 422.

    ApportionError
    ├── InvalidSetting      (ValueError)    an option or a value object with an impossible value
    ├── UnknownName         (LookupError)   a name that no table has; the message lists those there are
    ├── MissingPackage      (ImportError)   an optional package is not installed; the message says which extra
    ├── UnreadableFile      (OSError)       a file that is not there, not readable, or not of its kind
    │   ├── UnwritableFile                  an output that cannot be written: the disk is full, or read-only
    │   └── AlreadyWritten                  an output that another process writes, or that holds other things
    ├── MalformedInput      (ValueError)    a file whose contents are wrong; carries file, line and column
    │   ├── MalformedIR                     LLVM IR that no LLVM would read
    │   └── CompileError                    source that the compiler refuses; carries its diagnostics
    ├── InvalidGraph        (ValueError)    arrays that are not a program graph
    ├── AnalysisError       (ValueError)    a data-flow analysis that this graph, or this root, does not allow
    ├── NoDevice            (RuntimeError)  no device is there to run on
    ├── NotConfined         (RuntimeError)  kernels would run with fewer limits than were asked for
    ├── NotSplittable       (ValueError)    a kernel whose work cannot be shared between devices
    └── JobError            (RuntimeError)  work in a child process came to nothing
        ├── DeadlineExceeded (TimeoutError) it took longer than it was given
        ├── LimitExceeded                   it wanted more memory or wrote more output than it was given
        ├── WorkerCrashed                   it died: of a signal, or by leaving in the middle
        ├── ItemFailed                      it raised; carries the exception's type, message and traceback
        ├── LaunchFailed                    a driver refused or failed the launch of a kernel
        │   ├── OutOfBoundsRead             a kernel read outside its arguments
        │   └── OutOfBoundsWrite            a kernel wrote outside its arguments
        ├── DataLost                        a device died with the only copy of an array
        └── VerificationFailed              devices gave different results for the same launch
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class ApportionError(Exception):
    """The root of the tree; catch it to catch everything that apportion raises on purpose."""


class InvalidSetting(ApportionError, ValueError):
    """An option or a value object was given an impossible value."""


class UnknownName(ApportionError, LookupError):
    """A name that no table has."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        near = get_close_matches(name, self.known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        there = f" There are: {', '.join(self.known)}." if self.known else " There are none."
        super().__init__(f"No {kind} called {name!r}.{hint}{there}")


class MissingPackage(ApportionError, ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(
            f"{purpose} needs the package {package!r}. Install it with: pip install 'apportion[{extra}]'"
        )


class UnreadableFile(ApportionError, OSError):
    """A file that is not there, not readable, or not of its kind."""


class UnwritableFile(UnreadableFile):
    """An output that cannot be written: the disk is full, or the place is read-only."""


class AlreadyWritten(UnreadableFile):
    """An output that another process is writing, or that holds what would be lost."""


class MalformedInput(ApportionError, ValueError):
    """A file whose contents are wrong, with the place where it was noticed."""

    def __init__(
        self, message: str, *, file: str = "<input>", line: int | None = None, column: int | None = None
    ) -> None:
        self.message, self.file, self.line, self.column = message, file, line, column
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(f"{place}: {message}" if place else message)


class MalformedIR(MalformedInput):
    """LLVM IR that no LLVM would read."""


class CompileError(MalformedInput):
    """Source that the compiler refuses."""

    def __init__(
        self,
        message: str,
        *,
        file: str = "<input>",
        line: int | None = None,
        column: int | None = None,
        diagnostics: str = "",
    ) -> None:
        super().__init__(message, file=file, line=line, column=column)
        self.diagnostics = diagnostics
        "Everything the compiler said, with names of temporary files replaced by the user's."


class InvalidGraph(ApportionError, ValueError):
    """Arrays that do not make a program graph."""


class AnalysisError(ApportionError, ValueError):
    """A data-flow analysis that this graph, or this root, does not allow."""


class JobError(ApportionError, RuntimeError):
    """Work in a child process came to nothing."""


class DeadlineExceeded(JobError, TimeoutError):
    """It took longer than it was given."""


class LimitExceeded(JobError):
    """It wanted more memory, or wrote more output, than it was given."""


class WorkerCrashed(JobError):
    """It died: of a signal, or by leaving in the middle."""


class ItemFailed(JobError):
    """It raised an exception that is not one of ours."""

    def __init__(self, exception_type: str, message: str, traceback: str = "") -> None:
        self.exception_type, self.message, self.traceback = exception_type, message, traceback
        super().__init__(f"{exception_type}: {message}" if message else exception_type)


class LaunchFailed(JobError):
    """A driver refused or failed the launch of a kernel."""


class OutOfBoundsRead(LaunchFailed):
    """A kernel read outside its arguments."""


class OutOfBoundsWrite(LaunchFailed):
    """A kernel wrote outside its arguments."""


class DataLost(JobError):
    """A device died with the only copy of an array."""


class VerificationFailed(JobError):
    """Devices gave different results for the same launch."""


class NoDevice(ApportionError, RuntimeError):
    """No device is there to run on."""


class NotConfined(ApportionError, RuntimeError):
    """Kernels would run with fewer limits than were asked for."""


class NotSplittable(ApportionError, ValueError):
    """A kernel whose work cannot be shared between devices."""
