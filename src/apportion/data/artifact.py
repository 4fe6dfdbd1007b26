"""The one format of trained models: `artifact.json` says what it is, `weights.safetensors` has its numbers.

A folder is an artifact. What answers with it is the entry of `apportion.learn.predictors` that it names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors.numpy
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.settings import convert, read_json, replace_file

DESCRIPTION, WEIGHTS = "artifact.json", "weights.safetensors"
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Artifact:
    """What a trained model is, and how it came to be."""

    task: str
    model: str
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    "What is needed beside the weights to use it: sizes of a network, names of features."
    vocabulary: tuple[str, ...] = ()
    "Node texts by number; a text that is not among them is number `len(vocabulary)`."
    experiment: dict[str, Any] = field(default_factory=dict)
    "What made it: command, settings, fingerprint of the data, scores."
    checksum: str = ""
    "SHA-256 of the weights' file; set when it is written."
    predictor: str = ""
    "Which entry of `apportion.learn.predictors` answers with it."
    name: str = ""
    "What users call it; the folder's name where it is empty."
    licence: str = "Apache-2.0"
    "Under which the weights may be used."
    weights: str = WEIGHTS
    "The file of the weights, beside the description."

    def __post_init__(self) -> None:
        if not self.task or not self.model:
            raise InvalidSetting("An artifact must name its task and its model")
        if Path(self.weights).name != self.weights or not self.weights:
            raise InvalidSetting(f"weights must name a file beside the description, not {self.weights!r}")


def write_artifact(folder: Path, artifact: Artifact, weights: Mapping[str, NDArray[Any]]) -> Artifact:
    """Write a model to `folder`, made when missing; the artifact comes back with its checksum."""
    folder.mkdir(parents=True, exist_ok=True)
    data = arrays_to_bytes(weights)
    written = Artifact(**{**asdict(artifact), "checksum": hashlib.sha256(data).hexdigest()})
    replace_file(folder / artifact.weights, data)
    replace_file(folder / DESCRIPTION, json.dumps(asdict(written), indent=1).encode())
    return written


def read_artifact(folder: Path) -> tuple[Artifact, Arrays]:
    """A model's description and weights.

    Raises:
        UnreadableFile: a file is missing.
        MalformedInput: the description is not one, or the weights are not those that it describes.
    """
    artifact = read_description(folder)
    path = folder / artifact.weights
    data = read_bytes(path)
    if hashlib.sha256(data).hexdigest() != artifact.checksum:
        raise MalformedInput(
            f"does not have the checksum that {DESCRIPTION} gives. Fetch or train the model again.",
            file=str(path),
        )
    return artifact, arrays_from_bytes(data, path)


def read_description(folder: Path) -> Artifact:
    """What a model is, without reading its weights."""
    path = folder / DESCRIPTION
    return convert(Artifact, read_json(path), source=str(path))


def arrays_to_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Named arrays in the safetensors format."""
    # safetensors writes an array's memory as it lies there, which must be row by row.
    rows = {name: array if array.flags.c_contiguous else array.copy("C") for name, array in arrays.items()}
    return safetensors.numpy.save(rows)


def arrays_from_bytes(data: bytes, path: Path) -> Arrays:
    """Named arrays back from the safetensors format; `path` is named when they are broken."""
    try:
        return safetensors.numpy.load(data)
    except Exception as error:  # safetensors raises its own SafetensorError, ValueError or KeyError
        raise MalformedInput(f"is not a safetensors file ({error})", file=str(path)) from error


def read_bytes(path: Path) -> bytes:
    """A file's contents, or `UnreadableFile`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
