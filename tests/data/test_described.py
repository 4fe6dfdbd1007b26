"""Arrays with a description beside them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from apportion.advise.predictor import WEIGHTS
from apportion.data.described import described_in, read_described, write_described
from apportion.errors import MalformedInput, UnreadableFile

ARRAYS = {"feature": np.arange(4, dtype=np.int16), "score": np.linspace(0, 1, 6).reshape(2, 3)}


def test_arrays_and_what_they_are_come_back_bit_by_bit(tmp_path: Path) -> None:
    path = write_described(tmp_path / "new", "forest", ARRAYS, {"made_by": {"seed": 3}})
    assert path == tmp_path / "new" / "forest.safetensors"
    described, arrays = read_described(tmp_path / "new", "forest")
    assert (described["name"], described["made_by"]) == ("forest", {"seed": 3})
    assert {name: (array.dtype, array.tobytes()) for name, array in arrays.items()} == {
        name: (array.dtype, array.tobytes()) for name, array in ARRAYS.items()
    }
    assert described_in(tmp_path / "new") == ["forest"]


def test_changed_weights_and_missing_files_are_said(tmp_path: Path) -> None:
    path = write_described(tmp_path, "forest", ARRAYS, {})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(MalformedInput, match=r"forest.safetensors: the weights do not have the checksum"):
        read_described(tmp_path, "forest")
    path.unlink()
    with pytest.raises(UnreadableFile, match="Cannot read the model forest"):
        read_described(tmp_path, "forest")


@pytest.mark.parametrize("folder", [WEIGHTS, WEIGHTS / "timing"], ids=["shares", "times"])
def test_all_shipped_weights_are_safetensors_with_checksum_and_experiment_beside_them(folder: Path) -> None:
    names = described_in(folder)
    assert names
    assert sorted(
        path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".py"
    ) == sorted(f"{name}{end}" for name in names for end in (".json", ".safetensors"))
    for name in names:
        described = json.loads((folder / f"{name}.json").read_text())
        assert len(described["sha256"]) == 64
        assert described["made_by"]
