"""Forests and the network of Nichols et al. as models of relative performance: kept, answered by NumPy, over fewer systems."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from apportion.data.counter_table import AIWC
from apportion.errors import UnknownName
from apportion.learn import vector_models
from apportion.learn.base import open_predictor
from apportion.learn.relative import fitting_relative
from apportion.learn.relative.fitting_relative import fitted_of
from apportion.learn.relative.relative_fitted import RelativeFitted
from apportion.learn.relative.relative_model import Reference, RelativeModel
from apportion.learn.relative.relative_table import table_of
from apportion.learn.relative.vectors import ProfiledRows

SMALL = {"units": 16, "layers": 2, "epochs": 4, "regressor_epochs": 4, "calibration_epochs": 2, "feedback_from": 1,
         "feedback_to": 3, "encoder_units": 8, "latent": 3}  # fmt: skip


@pytest.fixture(scope="module")
def plain(timed_runs) -> RelativeModel:
    table = table_of(timed_runs, name="made up", counters=AIWC)
    reference = Reference(
        table.runs, table.application, table.systems, table.counters, table.values, table.log_times
    )
    return RelativeModel("made up", reference, "shape", 10.0, "shape", 10.0, {"seed": 1})


def fitted(plain: RelativeModel, kind: str, monkeypatch: pytest.MonkeyPatch) -> RelativeFitted:
    if kind == "network":
        pytest.importorskip("torch")
        monkeypatch.setitem(fitting_relative.SETTINGS, "network", SMALL)
    return fitted_of(plain, kind)


@pytest.mark.parametrize("kind", ["forest", "network"])
def test_numpy_says_what_the_fitted_learner_says(plain: RelativeModel, kind: str, monkeypatch) -> None:
    model = fitted(plain, kind, monkeypatch)
    rows, truth = plain.known_rows, plain.truth
    settings = fitting_relative.SETTINGS[kind]
    wanted = vector_models.load("extra-trees" if kind == "forest" else "network")(
        settings,
        rows,
        truth,
        seed=0,
        **({} if kind == "forest" else {"calibration": ProfiledRows(rows, rows)}),
    ).predict(rows)
    assert model.fitted is not None
    np.testing.assert_allclose(model.fitted.predict(rows), wanted, atol=1e-4)


@pytest.mark.parametrize("kind", ["forest", "network"])
def test_it_is_read_back_and_answers_over_some_of_its_systems(
    plain: RelativeModel, kind: str, monkeypatch, tmp_path: Path
) -> None:
    model = fitted(plain, kind, monkeypatch)
    model.save(tmp_path)
    back = open_predictor(tmp_path, "relative-performance")
    assert isinstance(back, RelativeFitted)
    assert back.learner == kind
    row = plain.reference.values[[5]]
    np.testing.assert_allclose(back.vector(row).vector, model.vector(row).vector, atol=1e-4)
    few = back.on(("new-gpu", "slow-cpu"))
    whole, part = back.vector(row).vector, few.vector(row).vector
    at = [plain.reference.systems.index(name) for name in few.reference.systems]
    assert part[0] - part[1] == pytest.approx(whole[at[0]] - whole[at[1]])
    assert part.sum() == pytest.approx(0, abs=1e-9)


def test_with_a_known_time_the_regressions_answer(plain: RelativeModel, monkeypatch) -> None:
    model = fitted(plain, "forest", monkeypatch)
    row, times = plain.reference.values[[5]], {"new-gpu": float(plain.reference.log_times[5, 3])}
    np.testing.assert_allclose(model.vector(row, times).vector, plain.vector(row, times).vector)


def test_an_unknown_kind_is_said(plain: RelativeModel) -> None:
    with pytest.raises(UnknownName, match="There are: forest, network"):
        fitted_of(plain, "boosting")
