"""`apportion data`: the published datasets, where they belong, and whether they are whole."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from apportion.cli.show import note, print_json, print_table, size_in_words
from apportion.data.catalogue import CATALOGUE, check, dataset_called, instructions
from apportion.data.catalogue import fetch as fetch_files

data = App(name="data", help="Published datasets: what they are, where they belong, whether they are whole.")

_FLAG = Parameter(negative="")


@data.command(name="list")
def list_datasets(*, json: Annotated[bool, _FLAG] = False) -> None:
    """List the datasets with their origin and licence, and their files with their checksums.

    Args:
        json: Print one line of JSON for each dataset.
    """
    if json:
        for dataset in CATALOGUE.values():
            print_json({**vars(dataset), "folder": dataset.folder})
        return
    rows = [(d.name, d.what, d.origin, d.licence, d.folder) for d in CATALOGUE.values()]
    print_table(("dataset", "what", "origin", "licence", "folder"), rows)
    files = [
        (
            d.name,
            file.name,
            "downloaded" if file.url else "by hand",
            _size(file.size),
            _size(file.unpacked),
            file.sha256 or "none known",
        )
        for d in CATALOGUE.values()
        for file in d.files
    ]
    columns = ("dataset", "file", "got", "size", "unpacked", "SHA-256")
    print_table(columns, files, right=columns[3:5])


@data.command
def path(dataset: str) -> None:
    """Print the folder where a dataset's files belong; APPORTION_DATA sets the folder of all.

    Args:
        dataset: The name of the dataset.
    """
    print(dataset_called(dataset).folder)


@data.command(name="check")
def check_files(dataset: str, *, folder: Path | None = None, json: Annotated[bool, _FLAG] = False) -> None:
    """Compare a dataset's files with their checksums; exit status 1 when one is missing or wrong.

    Args:
        dataset: The name of the dataset.
        folder: The folder of its files, if they are not in the usual one.
        json: Print one line of JSON for each file.
    """
    found = check(dataset_called(dataset), folder)
    if json:
        for condition in found:
            print_json({"file": condition.file.name, "path": condition.path, "state": condition.state})
    else:
        print_table(("file", "state", "path"), [(c.file.name, c.in_words, c.path) for c in found])
    bad = [condition for condition in found if condition.state != "good"]
    for condition in bad:
        note(f"{condition.file.name}: {instructions(condition)}")
    if bad:
        sys.exit(1)


@data.command
def fetch(
    dataset: str,
    *only: str,
    folder: Path | None = None,
    source: Annotated[Path | None, Parameter(name="--from")] = None,
) -> None:
    """Download a dataset's files, going on where an earlier download stopped, verify them, unpack archives.

    Args:
        dataset: The name of the dataset.
        only: The names of the files to fetch. By default all.
        folder: The folder to put them into. By default the usual one.
        source: A folder that has the files already, for a machine without a network. They are copied and
            verified.
    """
    left = 0
    for condition in fetch_files(dataset_called(dataset), folder, source=source, only=only):
        if condition.state == "good":
            unpacked = "" if condition.file.unpacked is None else ", unpacked"
            note(f"{condition.file.name}: {condition.in_words}{unpacked}, at {condition.path}")
        else:
            left += 1
            note(f"{condition.file.name}: by hand: {instructions(condition)}")
    if left:
        sys.exit(1)


def _size(bytes: int | None) -> str:
    return size_in_words(bytes) if bytes else ""
