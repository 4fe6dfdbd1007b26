"""`--server URL`: the verbs that a running studio answers, asked there instead of here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cyclopts import App

from apportion.advise.queries import size_of
from apportion.cli.show import note, print_json, print_table
from apportion.client import Client
from apportion.errors import InvalidSetting, UnknownName

OPTION = "--server"


def taken_from(words: list[str]) -> tuple[str | None, list[str]]:
    """The address that `--server` names, and the other words.

    Raises:
        InvalidSetting: no address stands behind it.
    """
    for place, word in enumerate(words):
        if word.startswith(f"{OPTION}="):
            return word.partition("=")[2], words[:place] + words[place + 1 :]
        if word == OPTION:
            if place + 1 == len(words):
                raise InvalidSetting(
                    f"{OPTION} needs the address of a service, such as http://127.0.0.1:8765"
                )
            return words[place + 1], words[:place] + words[place + 2 :]
    return None, words


def serve_there(app: App, address: str, words: list[str]) -> None:
    """Answer one command by a service; `--json` prints what the command itself would.

    Raises:
        UnknownName: a verb that only works here.
        InvalidSetting: an option that a service cannot serve.
    """
    name = " ".join(words[:2]) if words[:1] in (["relative"], ["models"]) else "".join(words[:1])
    if name not in _VERBS:
        raise UnknownName(f"command for {OPTION}", name, _VERBS)
    _, bound, _ = app.parse_args(words)
    given: dict[str, Any] = {}
    for parameter, value in bound.arguments.items():
        given[parameter] = value
    json = bool(given.pop("json", False))
    client = Client(address)
    for answer in _VERBS[name](client, given):
        if json:
            print_json(answer)
        else:
            for warning in answer.get("warnings", ()):
                note(f"Warning: {warning}.")
            print_table(("", "answer"), [(key, _words(value)) for key, value in answer.items()])


def _words(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) < 400 else f"{text[:400]}… (--json prints it whole)"


def _only(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """What is given, under these names alone.

    Raises:
        InvalidSetting: something else is given too.
    """
    others = [name for name in given if name not in names]
    if others:
        option = others[0].replace("_", "-")
        raise InvalidSetting(f"--{option} works on this machine alone, not with {OPTION}")
    return dict(given)


def _sizes(given: dict[str, Any]) -> dict[str, Any]:
    for name in ("local_size", "global_size"):
        if isinstance(given.get(name), str):
            found = size_of(re.sub(",", "x", given[name]), f"--{name.replace('_', '-')}")
            given[name] = list(found) if isinstance(found, tuple) else found
    return given


def _predict(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    settings = _sizes(_only(given, "sources", "local_size", "bytes", "kernel", "global_size", "task", "pair"))
    sources = settings.pop("sources", ())
    if not sources or not {"local_size", "bytes"} <= set(settings):
        raise InvalidSetting("Give a source with --local-size and --bytes")
    for source in sources:
        answer = client.predict(source, **settings)
        yield answer if len(sources) == 1 else {"source": str(source), **answer}


def _explain(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    settings = _sizes(_only(given, "sources", "local_size", "bytes", "kernel", "global_size", "pair"))
    for source in settings.pop("sources", ()):
        yield client.question("explain", source, **settings)


def _inspect(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    settings = _sizes(_only(given, "source", "global_size", "local_size", "kernel", "arg"))
    yield client.inspect(settings.pop("source"), arguments=settings.pop("arg", ()), **settings)


def _graph(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    names = ("files", "function", "variant", "type_nodes", "variable_per", "opaque_pointers")
    settings = _only(given, *names)
    for file in settings.pop("files", ()):
        yield client.question("graph", file, **settings)


def _analyze(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    settings = _only(given, "file", "analysis", "root", "roots", "seed", "mode", "function")
    yield client.question("analyze", settings.pop("file"), **settings)


def _run(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    names = ("source", "global_size", "local_size", "kernel", "arg", "split", "devices", "repeat", "seed")
    settings = _sizes(_only(given, *names, "trust", "seconds"))
    if isinstance(settings.get("devices"), str):
        settings["devices"] = settings["devices"].split(",")
    yield client.run(settings.pop("source"), arguments=list(settings.pop("arg", ())), cuts=False, **settings)


def _devices(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    _only(given, "quick")
    yield from client.ask("GET", "/api/devices")


def _doctor(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield client.ask("GET", "/api/doctor")


def _models(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    _only(given)
    yield from client.ask("GET", "/api/models")


_VERBS: Mapping[str, Callable[[Client, dict[str, Any]], Iterator[dict[str, Any]]]] = {
    "predict": _predict, "explain": _explain, "inspect": _inspect, "graph": _graph, "analyze": _analyze,
    "run": _run, "devices": _devices, "doctor": _doctor, "models list": _models,
}  # fmt: skip
"What a service answers."
