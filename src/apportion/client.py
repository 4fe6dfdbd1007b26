"""A client of a running studio: the answers of the command line, from another process or machine.

client = Client("http://127.0.0.1:8765/#token=…")      # the address that `apportion serve` prints
client.predict(Path("saxpy.cl"), local_size=64, bytes=1 << 20)["cpu_share"]
client.run(Path("saxpy.cl"), global_size=1 << 20)["verified"]
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from apportion import errors
from apportion.errors import ApportionError, InvalidSetting, JobError, MalformedInput, UnreadableFile
from apportion.program.buildfile import written
from apportion.program.source import Source

ADDRESS, TOKEN = "APPORTION_SERVER", "APPORTION_TOKEN"
"Environment variables that hold an address and a token where none is given."


class Client:
    """A running `apportion serve`.

    Args:
        address: such as http://127.0.0.1:8765; a token may stand behind `#token=`, as the service prints it.
        token: what running code needs, where the address does not hold it.
        seconds: how long to wait for an answer.
    """

    def __init__(
        self, address: str | None = None, *, token: str | None = None, seconds: float = 60.0
    ) -> None:
        text = address or os.environ.get(ADDRESS, "http://127.0.0.1:8765")
        parts = urlsplit(text if "//" in text else f"http://{text}")
        if parts.scheme != "http" or not parts.hostname:
            raise InvalidSetting(f"A service's address is written like http://127.0.0.1:8765, not {text!r}")
        self._place = parts.netloc
        held = parts.fragment.partition("token=")[2]
        self._token = token or held or os.environ.get(TOKEN, "")
        self._seconds = seconds

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON at an address of the service.

        Raises:
            ApportionError: what the service says is wrong, as the same error that a local call raises.
            UnreadableFile: there is no service at the address.
        """
        with self._answered(method, path, body) as response:
            return json.loads(response.read())

    def predict(
        self,
        source: Source | Path | str,
        *,
        local_size: int | Sequence[int],
        bytes: int,
        kernel: str | None = None,
        global_size: int | Sequence[int] | None = None,
        task: str = "load-balance",
        pair: str | None = None,
        arguments: Sequence[str] = (),
    ) -> dict[str, Any]:
        """What `apportion predict --json` prints."""
        form = {
            "source": _form(source), "local_size": _size(local_size), "bytes": bytes, "kernel": kernel,
            "global_size": _size(global_size), "task": task, "pair": pair, "arguments": list(arguments),
        }  # fmt: skip
        return dict(self.ask("POST", "/api/predict", form))

    def inspect(
        self,
        source: Source | Path | str,
        *,
        global_size: int | Sequence[int],
        local_size: int | Sequence[int] | None = None,
        kernel: str | None = None,
        arguments: Sequence[str] = (),
    ) -> dict[str, Any]:
        """What `apportion inspect --json` prints."""
        form = {
            "source": _form(source), "global_size": _size(global_size), "local_size": _size(local_size),
            "kernel": kernel, "arguments": list(arguments),
        }  # fmt: skip
        return dict(self.ask("POST", "/api/inspect", form))

    def question(self, verb: str, source: Source | Path | str, **settings: Any) -> Any:
        """The answer of a verb that takes a source: explain, graph, picture, analyze."""
        return self.ask("POST", f"/api/{verb}", {"source": _form(source), **settings})

    def run(
        self, source: Source | Path | str, *, global_size: int | Sequence[int], **settings: Any
    ) -> dict[str, Any]:
        """Run a kernel on the service's machine, and wait for what `apportion run --json` prints.

        Raises:
            JobError: the run failed or was cancelled.
        """
        form = {"source": _form(source), "global_size": _size(global_size), **settings}
        return self.ended(self.ask("POST", "/api/run", form)["id"])

    def measure(self, sources: Sequence[Source | Path | str], **settings: Any) -> dict[str, Any]:
        """Measure kernels on the service's machine: points as `apportion measure --json` prints them.

        Raises:
            JobError: it failed or was cancelled.
        """
        form = {"sources": [_form(source) for source in sources], **settings}
        return self.ended(self.ask("POST", "/api/measure", form)["id"])

    def train(
        self,
        experiment: Path | None = None,
        *,
        files: Sequence[Path] = (),
        jobs: Sequence[str] = (),
        name: str = "",
    ) -> dict[str, Any]:
        """Train a model, which the service keeps; its scores and its name.

        Args:
            experiment: the TOML file that `apportion train` takes; without one, the shares of two devices are
                learned from measuring jobs.
            files: what the experiment names, from its own folder: files, or folders with what is in them.
            jobs: ids of measuring jobs to learn from.

        Raises:
            JobError: it failed or was cancelled.
        """
        form = {
            "experiment": "" if experiment is None else _text(experiment),
            "files": files_form(files, Path() if experiment is None else experiment.parent),
            "jobs": list(jobs), "name": name,
        }  # fmt: skip
        return self.ended(self.ask("POST", "/api/train", form)["id"])

    def relative(self, profiles: Sequence[Mapping[str, Any]], **settings: Any) -> list[dict[str, Any]]:
        """What `apportion relative predict --json` prints of each profile: an object with `counters`."""
        return list(self.ask("POST", "/api/relative", {"profiles": list(profiles), **settings}))

    def rank(self, store: Path, **settings: Any) -> dict[str, Any]:
        """What `apportion rank score --json` prints of a baseline on a store of recorded configurations."""
        return dict(self.ask("POST", "/api/rank", {"files": files_form([store], store), **settings}))

    def tune(self, recorded: Path, budget: int, **settings: Any) -> list[dict[str, Any]]:
        """What `apportion tune --recorded --json` prints, for each seed."""
        table = _encoded(recorded) if recorded.suffix == ".npz" else _text(recorded)
        form = {"table": table, "name": _plain(recorded.name), "budget": budget, **settings}
        return list(self.ask("POST", "/api/tune", form))

    def schedule(self, systems: Sequence[str], **settings: Any) -> list[dict[str, Any]]:
        """What `apportion schedule simulate --json` prints of each policy, with its jobs and its queue."""
        return list(self.ask("POST", "/api/schedule", {"systems": list(systems), **settings}))

    def ended(self, id: str) -> dict[str, Any]:
        """Wait for a job; its answer.

        Raises:
            JobError: it failed, was cancelled or interrupted.
        """
        for _ in self.events(id):
            pass
        return self.result(id)

    def events(self, id: str) -> Iterator[dict[str, Any]]:
        """What a job says, until it ends."""
        with self._answered("GET", f"{_place_of(id)}/events") as response:
            name = ""
            for line in response:
                text = line.decode().rstrip("\n")
                if text.startswith("event: "):
                    name = text[7:]
                elif text.startswith("data: ") and name == "progress":
                    yield json.loads(text[6:])

    def jobs(self, *, state: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """The latest jobs, newest first; those of one state alone where it is named."""
        query = {"limit": limit} | ({} if state is None else {"state": state})
        return list(self.ask("GET", f"/api/jobs?{urlencode(query)}"))

    def job(self, id: str) -> dict[str, Any]:
        """A job with its request, and with its answer if it is done."""
        return dict(self.ask("GET", _place_of(id)))

    def result(self, id: str) -> dict[str, Any]:
        """The answer of a job that is done.

        Raises:
            JobError: it waits, runs, failed, was cancelled or interrupted.
        """
        job = self.job(id)
        if job["state"] != "done":
            raise _error(job["error"] or {"kind": "JobError", "message": f"The job {id} is {job['state']}"})
        return dict(job["answer"])

    def cancel(self, id: str) -> dict[str, Any]:
        """End a job that waits or runs."""
        return dict(self.ask("POST", f"{_place_of(id)}/cancel", {}))

    def _answered(self, method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self._place, timeout=self._seconds)
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise UnreadableFile(
                f"No service answers at {self._place} ({error}). Start one with: apportion serve"
            ) from error
        if response.status >= 400:
            text = response.read()
            connection.close()
            try:
                problem = json.loads(text)["error"]
            except (ValueError, KeyError, TypeError):
                problem = {"kind": "JobError", "message": f"The service answered {response.status}"}
            raise _error(problem)
        return response


def _place_of(id: str) -> str:
    """The address of a job."""
    return f"/api/jobs/{quote(id, safe='')}"


def _form(source: Source | Path | str) -> dict[str, Any]:
    found = source if isinstance(source, Source) else Source.read(source)
    if isinstance(found.text, bytes):
        raise InvalidSetting(f"{found.name} is bitcode; a service takes text. Give it as .ll")
    return {
        "text": found.text, "language": found.language, "name": _plain(Path(found.name).name),
        "build_options": shlex.join(written(found.build)),
    }  # fmt: skip


def files_form(paths: Sequence[Path], root: Path) -> list[dict[str, str]]:
    """Files, and those of folders, as requests hold them: names counted from a folder, and base64."""
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    return [
        {"name": str(file.relative_to(root)) if file.is_relative_to(root) else file.name,
         "data": _encoded(file)}
        for file in files
        if not file.is_dir()
    ]  # fmt: skip


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error


def _encoded(path: Path) -> str:
    return base64.b64encode(_read(path)).decode()


def _text(path: Path) -> str:
    return _read(path).decode("utf-8", "replace")


def _plain(name: str) -> str:
    """A file's name as the service takes names."""
    kept = "".join(letter if letter.isalnum() or letter in " .+-_()" else "-" for letter in name)
    return kept[:120] or "source"


def _size(size: int | Sequence[int] | None) -> int | list[int] | None:
    return size if size is None or isinstance(size, int) else list(size)


def _error(problem: dict[str, Any]) -> ApportionError:
    """The error that a local call would have raised, as far as the service told of it."""
    message = str(problem.get("message", ""))
    kind = getattr(errors, str(problem.get("kind")), JobError)
    if not (isinstance(kind, type) and issubclass(kind, ApportionError)):
        kind = JobError
    if issubclass(kind, MalformedInput):
        line, column = problem.get("line"), problem.get("column")
        return kind(message, file=str(problem.get("file", "<input>")), line=line, column=column)
    try:
        return kind(message)
    except TypeError:  # its constructor makes the message of parts, which the service does not tell
        found: ApportionError = kind.__new__(kind)
        found.args = (message,)
        return found
