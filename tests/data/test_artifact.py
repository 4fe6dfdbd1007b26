"""A trained model at rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apportion.data.artifact import Artifact, read_artifact, read_description, write_artifact
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile

LIVENESS = Artifact("liveness", "programl", {"width": 32}, ("add", "i32*"), {"seed": 1})
WEIGHTS = {"layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.zeros(2, np.float32)}


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    written = write_artifact(tmp_path / "new", LIVENESS, WEIGHTS)
    artifact, weights = read_artifact(tmp_path / "new")
    assert artifact == written == read_description(tmp_path / "new")
    assert artifact.vocabulary == ("add", "i32*")
    assert len(artifact.checksum) == 64
    assert weights.keys() == WEIGHTS.keys()
    for name, array in WEIGHTS.items():
        np.testing.assert_array_equal(weights[name], array)


def test_one_changed_byte_of_the_weights_is_noticed(tmp_path: Path) -> None:
    write_artifact(tmp_path, LIVENESS, WEIGHTS)
    path = tmp_path / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(MalformedInput, match=r"weights.safetensors: does not have the checksum"):
        read_artifact(tmp_path)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"Cannot read .*artifact.json: No such file"):
        read_artifact(tmp_path)


def test_a_description_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "artifact.json").write_text("{")
    with pytest.raises(MalformedInput, match="is not JSON"):
        read_artifact(tmp_path)


def test_a_description_with_a_strange_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "artifact.json").write_text('{"task": "liveness", "model": "programl", "colour": 1}')
    with pytest.raises(InvalidSetting, match="colour"):
        read_description(tmp_path)


def test_an_artifact_names_its_task_and_model() -> None:
    with pytest.raises(InvalidSetting, match="must name its task and its model"):
        Artifact("", "programl")


def test_an_array_that_lies_column_by_column_comes_back_as_it_is(tmp_path: Path) -> None:
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    write_artifact(tmp_path, LIVENESS, {"turned": columns, "part": np.arange(6)[::2], "one": np.array(3.0)})
    _, weights = read_artifact(tmp_path)
    np.testing.assert_array_equal(weights["turned"], columns)
    assert weights["part"].tolist() == [0, 2, 4]
    assert weights["one"].shape == ()
