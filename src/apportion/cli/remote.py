"""`--server URL`: the verbs that a running studio answers, asked there instead of here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
from cyclopts import App

from apportion.advise.queries import size_of
from apportion.advise.relative_answers import read_profiles
from apportion.cli.building import USUAL
from apportion.cli.measure import numbers_of
from apportion.cli.relative import known_time
from apportion.cli.run import WATTS, pair_of
from apportion.cli.show import note, print_json, print_table, shortened
from apportion.client import Client
from apportion.errors import InvalidSetting, UnknownName
from apportion.measure.campaign import TABLE, kernel_files
from apportion.settings import read_toml, replace_file, texts_in, whole_file

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
    name = next((one for one in (" ".join(words[:2]), "".join(words[:1])) if one in _VERBS), words[0])
    if name not in _VERBS:
        raise UnknownName(f"command for {OPTION}", name, _VERBS)
    _, bound, _ = app.parse_args(words)
    given: dict[str, Any] = {}
    for parameter, value in bound.arguments.items():
        given[parameter] = value
    as_json = bool(given.pop("json", False))
    client = Client(address)
    answers = _VERBS[name](client, given)
    if as_json and name == "tune":  # its command prints one list
        print_json(list(answers))
        return
    for answer in answers:
        if as_json:
            print_json(answer)
        else:
            for warning in answer.get("warnings", ()):
                note(f"Warning: {warning}.")
            print_table(("", "answer"), [(key, shortened(value)) for key, value in answer.items()])


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
    building = given.pop("building", USUAL)
    names = ("sources", "local_size", "bytes", "kernel", "global_size", "task", "pair", "arg")
    settings = _sizes(_only(given, *names))
    settings["arguments"] = settings.pop("arg", ())
    sources = settings.pop("sources", ())
    if not sources or not {"local_size", "bytes"} <= set(settings):
        raise InvalidSetting("Give a source with --local-size and --bytes")
    for source in sources:
        answer = client.predict(building.source(source), **settings)
        yield answer if len(sources) == 1 else {"source": str(source), **answer}


def _explain(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    building = given.pop("building", USUAL)
    names = ("sources", "local_size", "bytes", "kernel", "global_size", "pair", "arg")
    settings = _sizes(_only(given, *names))
    settings["arguments"] = list(settings.pop("arg", ()))
    for source in settings.pop("sources", ()):
        yield client.question("explain", building.source(source), **settings)


def _inspect(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    building = given.pop("building", USUAL)
    settings = _sizes(_only(given, "source", "global_size", "local_size", "kernel", "arg"))
    source = building.source(settings.pop("source"))
    yield client.inspect(source, arguments=settings.pop("arg", ()), **settings)


def _graph(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    building = given.pop("building", USUAL)
    names = ("files", "function", "variant", "type_nodes", "variable_per", "opaque_pointers")
    settings = _only(given, *names)
    for file in settings.pop("files", ()):
        yield client.question("graph", building.source(file), **settings)


def _analyze(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    building = given.pop("building", USUAL)
    settings = _only(given, "file", "analysis", "root", "roots", "seed", "mode", "function")
    yield client.question("analyze", building.source(settings.pop("file")), **settings)


def _run(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    building = given.pop("building", USUAL)
    names = ("source", "global_size", "local_size", "kernel", "arg", "split", "devices", "repeat", "seed")
    settings = _sizes(_only(given, *names, "trust", "seconds", "objective", "watts"))
    if "watts" in settings:
        settings["watts"] = dict(pair_of(text, WATTS) for text in settings["watts"])
    if isinstance(settings.get("devices"), str):
        settings["devices"] = settings["devices"].split(",")
    source = building.source(settings.pop("source"))
    yield client.run(source, arguments=list(settings.pop("arg", ())), cuts=False, **settings)


def _devices(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    _only(given, "quick")
    yield from client.ask("GET", "/api/devices")


def _doctor(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield client.ask("GET", "/api/doctor")


def _models(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    _only(given)
    yield from client.ask("GET", "/api/models")


def _measure(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    building = given.pop("building", USUAL)
    settings = _only(given, "sources", "out", "devices", "sizes", "local_sizes", "seconds", "budget")
    out = Path(settings.pop("out"))
    for name in ("sizes", "local_sizes"):
        if name in settings:
            settings[name] = [] if settings[name] == "auto" else numbers_of(settings[name], f"--{name}")
    if "devices" in settings:
        settings["devices"] = [] if settings["devices"] == "all" else settings["devices"].split(",")
    sources = [building.source(path) for path in kernel_files(settings.pop("sources", ()))]
    points = client.measure(sources, **settings)["points"]
    points = [{name: value for name, value in point.items() if name != "work"} for point in points]
    out.mkdir(parents=True, exist_ok=True)
    with whole_file(out / TABLE) as path:
        pl.DataFrame(points, infer_schema_length=None).write_parquet(path)
    yield from points


def _train(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in _only(given, "experiments").get("experiments", ()):
        words = [word for word in texts_in(read_toml(path)) if word and not Path(word).is_absolute()]
        named = [path.parent / word for word in words if (path.parent / word).exists()]
        yield {path.stem: client.train(path, files=named, name=path.stem)}


def _relative(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    settings = _only(given, "profiles", "systems", "seconds", "target")
    if "seconds" in settings:
        settings["seconds"] = dict(known_time(word) for word in settings["seconds"])
    runs = [asdict(run) for path in settings.pop("profiles") for run in read_profiles(path)]
    yield from client.relative(runs, **settings)


def _schedule(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    files = ("trace", "throughputs", "times")
    settings = _only(given, *files, "format", "systems", "policy", "sigma", "seed", "jobs", "load")
    named = {name: str(settings[name]) for name in files if name in settings}
    for name in files:
        if name in settings:
            if settings[name].suffix == ".parquet":
                raise InvalidSetting(f"--{name} must be text with {OPTION}; {settings[name].name} is Parquet")
            settings[name] = settings[name].read_text(encoding="utf-8")
    settings["policies"] = settings.pop("policy", ["eft"])
    usual = {"format": "table", "jobs": 1000}
    for answer in client.schedule(settings.pop("systems", ()), **usual | settings):
        answer["repeat"] |= named
        yield {name: value for name, value in answer.items() if name not in ("schedule", "queue")}


def _tune(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    settings = _only(given, "recorded", "budget", "seeds", "random_share", "check_share")
    if not {"recorded", "budget"} <= set(settings):
        raise InvalidSetting(f"With {OPTION}, give a table that was --recorded, and the --budget")
    yield from client.tune(settings.pop("recorded"), **settings)


def _rank(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    settings = _only(given, "store", "baseline", "measured", "side", "collection", "seed")
    yield client.rank(settings.pop("store"), **settings)


def _import(client: Client, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows as JSON profiles, which `relative predict` takes."""
    settings = _only(given, "files", "out", "format", "program", "system", "size")
    out = Path(settings.pop("out"))
    if out.suffix != ".json":
        raise InvalidSetting(f"With {OPTION} profiles are written as JSON: --out {out.stem}.json")
    profiles: list[Any] = []
    for file in settings.pop("files", ()):
        form = {"text": file.read_text(encoding="utf-8"), "name": file.name, **settings}
        answer = client.ask("POST", "/api/counters/import", form)
        profiles += answer.pop("profiles")
        yield answer
    replace_file(out, json.dumps(profiles, indent=1).encode())


_VERBS: Mapping[str, Callable[[Client, dict[str, Any]], Iterator[dict[str, Any]]]] = {
    "predict": _predict, "explain": _explain, "inspect": _inspect, "graph": _graph, "analyze": _analyze,
    "run": _run, "devices": _devices, "doctor": _doctor, "models list": _models, "measure": _measure,
    "train": _train, "relative predict": _relative, "schedule simulate": _schedule, "tune": _tune,
    "rank score": _rank, "counters import": _import,
}  # fmt: skip
"What a service answers."
