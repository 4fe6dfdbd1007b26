"""Errors on their way to a client: a status, a kind, a message, and nothing about this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from apportion.errors import (
    ApportionError,
    DeadlineExceeded,
    LimitExceeded,
    MalformedInput,
    MissingPackage,
    NoDevice,
    WorkerCrashed,
)

_PATH = re.compile(r"(?<![\w<.:/-])/(?:[\w.+@~-]+/)+([\w.+@~-]*)")
"An absolute path of at least one folder; `//` of an address is none, nor is `a/b`."
_STATUS: tuple[tuple[type[ApportionError], int], ...] = (
    (DeadlineExceeded, 504),
    (LimitExceeded, 422),
    (MissingPackage, 501),
    (NoDevice, 503),
    (WorkerCrashed, 422),
)
BUG = {"kind": "Bug", "message": "apportion failed at this question; the service's log says how"}
"What a client is told of an error that is not one of ours."


class Refused(ApportionError):
    """A request that the service does not take: too many, too large, without the token."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        self.status, self.retry_after = status, retry_after
        super().__init__(message)


class Failed(ApportionError):
    """An error that a worker process reported, as a client is told of it."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status, self.body = status, dict(body)
        super().__init__(str(body.get("message", "")))


def failure_of(error: ApportionError) -> tuple[int, dict[str, Any]]:
    """The status and the body that tell a client of an error; 422 where the request is at fault."""
    if isinstance(error, Failed):
        return error.status, error.body
    if isinstance(error, Refused):
        return error.status, {"kind": "Refused", "message": str(error)}
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 422)
    body: dict[str, Any] = {"kind": type(error).__name__, "message": without_paths(str(error))}
    if isinstance(error, MalformedInput):
        body |= {"message": without_paths(error.message), "line": error.line, "column": error.column}
        body["file"] = without_paths(error.file)
    if diagnostics := getattr(error, "diagnostics", ""):
        body["diagnostics"] = without_paths(diagnostics)
    return status, body


def without_paths(value: Any) -> Any:
    """The same text or JSON, with only the last part of every absolute path."""
    if isinstance(value, str):
        return _PATH.sub(lambda found: found[1] or "…", value)
    if isinstance(value, Mapping):
        return {key: without_paths(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(each) for each in value]
    return value
