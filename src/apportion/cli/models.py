"""`apportion models`: the trained models that the package ships."""

from __future__ import annotations

import hashlib
import sys
from itertools import groupby
from operator import itemgetter
from typing import Annotated

from cyclopts import App, Parameter

from apportion import weights
from apportion.cli.show import note, print_json, print_table, size_in_words
from apportion.data.artifact import read_artifact, read_bytes, read_description
from apportion.errors import ApportionError, UnknownName
from apportion.learn.base import QUESTIONS, model_folder, shipped_models

models = App(name="models", help="List, show and check the trained models that answer questions.")
_Json = Annotated[bool, Parameter(negative="")]


@models.default
@models.command(name="list")
def list_models(*, question: str | None = None, json: _Json = False) -> None:
    """List the shipped models: what each answers, of what, how good it is. A star marks the default.

    Where a model is worse than the trivial answer in brackets, its score says what it missed.

    Args:
        question: List only models that answer this question: shares, times, relative-performance, ranking or
            data-flow.
        json: Print one line of JSON for each model.
    """
    if question is not None and question not in QUESTIONS:
        raise UnknownName("question", question, QUESTIONS)
    shipped = [one for one in shipped_models() if question in (None, one["question"])]
    if json:
        for one in shipped:
            print_json(one)
        return
    for asked, found in groupby(shipped, itemgetter("question")):
        rows = [
            (
                one["name"],
                "*" if one["default"] else "",
                one["about"],
                size_in_words(one["size"]),
                "; missed: ".join((one["score"], *one["misses"])),
            )
            for one in found
        ]
        title = f"{asked}: {QUESTIONS[asked]}"
        print_table(("model", "", "of", "size", "score"), rows, title=title, right=("size",))


@models.command
def show(model: str, *, json: _Json = False) -> None:
    """Show what a model is: its question, what made it, from which data, and how good it is.

    Args:
        model: The name of a shipped model, or the folder of any.
        json: Print its whole description as JSON.
    """
    folder = model_folder(model)
    artifact = read_description(folder)
    if json:
        print_json({**vars(artifact), "vocabulary": list(artifact.vocabulary)})
        return
    made = artifact.experiment
    shipped = {one.name: one for one in weights.manifest().models}
    rows = [
        ("name", artifact.name or folder.name),
        ("task", artifact.task),
        ("kind", f"{artifact.model}, answered by {artifact.predictor}"),
        ("folder", str(folder)),
        ("weights", size_in_words((folder / artifact.weights).stat().st_size)),
        ("checksum", artifact.checksum),
        ("licence", artifact.licence),
        *((key.replace("_", " "), str(value)) for key, value in made.items() if _short(value)),
    ]
    if model in shipped:
        rows.insert(1, ("question", QUESTIONS.get(shipped[model].question, shipped[model].question)))
    print_table(("", "value"), rows)


@models.command
def check(*chosen: str, json: _Json = False) -> None:
    """Read models whole, compare their weights with their checksums, and say what is damaged.

    Args:
        chosen: Names of shipped models, or folders. By default all shipped ones.
        json: Print one line of JSON for each model.
    """
    manifest = weights.manifest()
    known = {one.name: one for one in manifest.models}
    rows, broken = [], 0
    for name in chosen or tuple(known):
        problem = _problem(name, known.get(name))
        broken += problem is not None
        if json:
            print_json({"model": name, "problem": problem})
        rows.append((name, problem or "good"))
    if not json:
        print_table(("model", "state"), rows)
    if broken:
        note(f"{broken} of {len(rows)} models are damaged: install the package again, or train them again.")
        sys.exit(1)


def _problem(name: str, shipped: weights.ShippedModel | None) -> str | None:
    """What is wrong with a model, or None."""
    try:
        folder = model_folder(name)
        artifact, _ = read_artifact(folder)
        found = hashlib.sha256(read_bytes(folder / artifact.weights)).hexdigest()
    except ApportionError as error:
        return str(error)
    if shipped is not None and found != shipped.checksum:
        return "its weights are not those of the manifest"
    if not artifact.predictor:
        return "its description does not say which predictor answers with it"
    return None


def _short(value: object) -> bool:
    return isinstance(value, str | int | float) and len(str(value)) < 200
