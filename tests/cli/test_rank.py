"""`apportion rank` from files to a checked submission."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from apportion.cli import main
from apportion.data.published import tpugraphs
from apportion.data.published.tpugraphs import LayoutFile, TensorGraph, TileFile

GRAPH = TensorGraph(
    np.array([63, 24, 2], np.uint8),
    np.zeros((3, 140), np.float32),
    np.array([[1, 0], [2, 1]]),
    np.array([0, 3]),
)


def layout(configurations: int, *, measured: bool = True) -> LayoutFile:
    random = np.random.default_rng(configurations)
    features = random.integers(-1, 2, (configurations, 3, 18)).astype(np.float32)
    features[:, :, 1:] = -1
    runtime = (5_000 + features[:, :, 0] @ [90, 250, 700]).astype(np.int64) + random.integers(
        0, 5, configurations
    )
    return LayoutFile(GRAPH, np.arange(3), runtime * measured, features)


def tile(measured: bool = True) -> TileFile:
    features = np.arange(192, dtype=np.float32).reshape(8, 24)
    runtime = np.array([5, 4, 3, 2, 9, 8, 7, 6]) * measured
    return TileFile(GRAPH, features, runtime, np.full(8, 5) * measured)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The five collections with a validation and a test graph each."""
    for collection in tpugraphs.COLLECTIONS:
        for side in ("valid", "test"):
            place = tmp_path / "npz" / collection.replace(":", "/") / side
            place.mkdir(parents=True)
            known = side == "valid"
            file = tile(known) if collection == "tile:xla" else layout(25, measured=known)
            tpugraphs.write(place / "g.npz", file)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as leaving:
        main([str(word) for word in words])
    assert not leaving.value.code, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as leaving:
        main([str(word) for word in words])
    assert leaving.value.code == 1
    return capsys.readouterr().err


def test_the_five_collections_are_packed_and_scored_with_their_total(folder, capsys):
    store = folder / "store"
    packed = json.loads(said(capsys, "rank", "pack", folder / "npz", "--out", store, "--json"))
    assert len(packed["graphs"]) == 10
    assert "layout:nlp:random" in said(capsys, "rank", "show", store)
    truth = {f"{name}:g": layout(25).config_runtime for name in tpugraphs.COLLECTIONS[:4]}
    np.savez(folder / "scores.npz", **truth, **{"tile:xla:g": tile().config_runtime})
    perfect = json.loads(said(capsys, "rank", "score", store, "--scores", folder / "scores.npz", "--json"))
    assert perfect["competition_total"] == 1
    assert perfect["collections"]["tile:xla"]["measures"]["tile_score"]["value"] == 1
    assert perfect["collections"]["layout:xla:random"]["measures"]["opa"]["value"] == 1
    table = said(capsys, "rank", "score", store, "--baseline", "random")
    assert "slowdown@10" in table


def test_a_test_side_is_answered_and_the_answers_keep_the_rules(folder, capsys):
    store, answers = folder / "store", folder / "answers.csv"
    said(capsys, "rank", "pack", folder / "npz", "--out", store)
    scores = {f"{name}:g": np.arange(25)[::-1] for name in tpugraphs.COLLECTIONS[:4]}
    np.savez(folder / "scores.npz", **scores, **{"tile:xla:g": np.arange(8)})
    said(capsys, "rank", "submit", store, "--scores", folder / "scores.npz", "--out", answers)
    assert answers.read_text().splitlines()[0] == "ID,TopConfigs"
    assert "tile:xla:g,0;1;2;3;4" in answers.read_text().splitlines()
    assert json.loads(said(capsys, "rank", "check", answers, "--store", store, "--json"))["tile:xla"] == 1
    assert "The test set has 844 of tile:xla" in refused(capsys, "rank", "check", answers)


def test_a_recorded_file_is_tuned(tmp_path, capsys):
    tpugraphs.write(tmp_path / "a.npz", layout(200))
    words = ("rank", "tune", "--recorded", tmp_path / "a.npz", "--budget", 12, "--seeds", 2)
    runs = json.loads(said(capsys, *words, "--json"))
    assert [run["measured"] for run in runs] == [12, 12]
    assert all(run["tau_b"] > 0.9 and run["distinct"] == 27 for run in runs)
    assert "12 of 27 different configurations measured" in said(capsys, *words)
    message = refused(capsys, "rank", "tune", "--recorded", tmp_path / "a.npz", "--budget", 30)
    assert "has 27 different configurations: a budget of 30 leaves none" in message


def test_what_cannot_be_scored_says_why(folder, capsys):
    store = folder / "store"
    said(capsys, "rank", "pack", folder / "npz", "--out", store)
    assert "Give one of: a file of --scores, a trained --model, a --baseline" in refused(
        capsys, "rank", "score", store
    )
    untold = refused(capsys, "rank", "score", store, "--baseline", "random", "--side", "test")
    assert "its runtimes are all zero, as in a test file" in untold
    none = refused(capsys, "rank", "score", store, "--baseline", "random", "--side", "train")
    assert "There is no graph to rank" in none
    tiles = refused(capsys, "rank", "score", store, "--baseline", "ridge", "--collection", "tile:xla")
    assert "Tiles have no options that configurations share" in tiles
    np.savez(folder / "few.npz", **{"tile:xla:g": np.zeros(8)})
    lacking = refused(capsys, "rank", "score", store, "--scores", folder / "few.npz")
    assert "has no scores for layout:nlp:default:g" in lacking


def test_one_configuration_cannot_be_ranked_and_a_damaged_file_is_named(tmp_path, capsys):
    source = tmp_path / "layout/xla/random/valid"
    source.mkdir(parents=True)
    tpugraphs.write(source / "lonely.npz", layout(1))
    said(capsys, "rank", "pack", tmp_path / "layout", "--out", tmp_path / "store")
    alone = refused(capsys, "rank", "score", tmp_path / "store", "--baseline", "random")
    assert "lonely: Ranking needs at least two configurations, not 1" in alone
    (source / "lonely.npz").write_bytes(b"PK")
    damaged = refused(capsys, "rank", "pack", tmp_path / "layout", "--out", tmp_path / "store")
    assert "lonely.npz: it is no NPZ archive, or was cut short" in damaged
    assert damaged.count("\n") == 1


LEARNED = """
data = "unknown"
model = "{model}"
collections = {collections}
[hyperparameters]
{hyperparameters}
"""


def test_rankers_are_trained_with_seeds_evaluated_and_answer_for_their_collections(
    folder, capsys, monkeypatch
):
    pytest.importorskip("safetensors")
    monkeypatch.chdir(folder)
    for collection in tpugraphs.COLLECTIONS:
        place = folder / "npz" / collection.replace(":", "/") / "train"
        place.mkdir(parents=True)
        tpugraphs.write(place / "h.npz", tile() if collection == "tile:xla" else layout(30))
    said(capsys, "rank", "pack", folder / "npz", "--out", "store")
    layouts = str(list(tpugraphs.COLLECTIONS[:4]))
    ridge = LEARNED.format(model="ridge", collections=layouts, hyperparameters="measured = 9")
    chance = LEARNED.format(model="random", collections='["tile:xla"]', hyperparameters="")
    Path("layouts.toml").write_text(ridge)
    Path("tiles.toml").write_text(chance)
    words = ("rank", "train", "layouts.toml", "--data", "store", "--json")
    found = json.loads(said(capsys, *words, "--seeds", 2))
    entry = found["collections"]["layout:nlp:random"]
    assert (entry["graphs"], entry["seeds"]) == (1, 2)
    assert entry["measures"]["opa"]["value"] > 0.9
    assert json.loads(said(capsys, *words, "--seeds", 2, "--resume")) == found
    assert "holds a run already" in refused(capsys, *words, "--seeds", 2)
    runs = ("runs/layouts/seed-0", "runs/layouts/seed-1")
    table = said(capsys, "rank", "evaluate", "store", *runs, "--collection", "layout:xla:random")
    assert "layout:xla:random" in table
    assert max(map(len, table.splitlines())) <= 100
    said(capsys, "rank", "train", "tiles.toml", "--data", "store")
    both = ("--model", runs[0], "--model", "runs/tiles")
    scored = json.loads(said(capsys, "rank", "score", "store", *both, "--json"))
    assert len(scored["collections"]) == 5
    assert scored["competition_total"] is not None
    alone = refused(capsys, "rank", "score", "store", "--model", runs[0])
    assert "No model that was given was trained with tile:xla" in alone


def test_a_trained_ranker_answers_the_competition(folder, capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(folder)
    place = folder / "npz" / "layout/xla/random" / "train"
    place.mkdir(parents=True)
    tpugraphs.write(place / "h.npz", layout(30))
    said(capsys, "rank", "pack", folder / "npz" / "layout" / "xla" / "random", "--out", "store")
    Path("one.toml").write_text(
        'data = "store"\ndevice = "cpu"\n[hyperparameters.network]\nwidth = 8\n'
        "[optimisation]\nmax_steps = 3\nvalidate_every = 3\n"
    )
    said(capsys, "rank", "train", "one.toml")
    said(capsys, "rank", "submit", "store", "--model", "runs/one", "--out", "answers.csv")
    line = Path("answers.csv").read_text().splitlines()[1]
    assert line.startswith("layout:xla:random:g,")
    assert sorted(map(int, line.split(",")[1].split(";"))) == list(range(25))
