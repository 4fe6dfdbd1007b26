"""Learners of vectors: what each can learn, what it cannot, and every stage of the network of Nichols et al.."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting
from apportion.learn import vector_models
from apportion.learn.relative.vectors import ProfiledRows, ridge

QUICK = {"units": 32, "layers": 2, "encoder_units": 16, "latent": 3, "epochs": 20, "regressor_epochs": 80,
         "calibration_epochs": 5, "feedback_from": 5, "feedback_to": 15, "batch": 32,
         "learning_rate": 3e-3}  # fmt: skip
SETTINGS = {
    "network": QUICK, "bagged-boosting": {"trees": 40}, "extra-trees": {"trees": 20},
    "random-forest": {"trees": 20}, "boosting": {"trees": 40}, "ridge": {"strength": 0.1},
}  # fmt: skip


def lines(runs: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Three features, of which two vectors' systems are made; the first column is in thousands."""
    rows = np.random.default_rng(3).standard_normal((runs, 3)) * [1000, 1, 1]
    truth = np.stack([rows[:, 0] / 1000, rows[:, 1], -rows[:, 0] / 1000 - rows[:, 1]], axis=1)
    return rows, truth


def unexplained(said: np.ndarray, truth: np.ndarray) -> float:
    return float(((said - truth) ** 2).sum() / ((truth - truth.mean(axis=0)) ** 2).sum())


def fitted(name: str, rows: np.ndarray, truth: np.ndarray, seed: int = 1, **more):
    if name in ("network", "bagged-boosting", "extra-trees", "random-forest"):
        pytest.importorskip("torch" if name == "network" else "sklearn")
    if name == "boosting":
        pytest.importorskip("xgboost")
    return vector_models.load(name)({**SETTINGS.get(name, {}), **more}, rows, truth, seed=seed)


@pytest.mark.parametrize("name", sorted(set(vector_models) - {"constant"}))
def test_every_learner_learns_and_does_the_same_again(name: str) -> None:
    rows, truth = lines()
    model = fitted(name, rows[:50], truth[:50])
    said = model.predict(rows)
    assert said.shape == truth.shape
    assert unexplained(said[:50], truth[:50]) < 0.35
    assert unexplained(said[50:], truth[50:]) < 0.75
    np.testing.assert_allclose(fitted(name, rows[:50], truth[:50]).predict(rows), said, atol=1e-5)


def test_the_constant_says_the_mean_whatever_the_counters() -> None:
    rows, truth = lines()
    said = fitted("constant", rows, truth).predict(rows[:2] + 7)
    np.testing.assert_allclose(said, [truth.mean(axis=0)] * 2)


def test_ridge_is_least_squares_held_back() -> None:
    rows, truth = lines()
    loose, tight = ridge({"strength": 1e-9}, rows, truth), ridge({"strength": 1e9}, rows, truth)
    np.testing.assert_allclose(loose.predict(rows), truth, atol=1e-6)
    np.testing.assert_allclose(tight.predict(rows), np.tile(truth.mean(axis=0), (len(rows), 1)), atol=1e-5)
    # The farther a run lies from those known, the wider its error may be.
    spread = loose.spread(np.array([rows.mean(axis=0), rows.mean(axis=0) + 100 * rows.std(axis=0)]))
    assert 1 <= spread[0] < 1.1
    assert spread[1] > 10 * spread[0]
    with pytest.raises(InvalidSetting, match="strength must be positive, not 0"):
        ridge({"strength": 0.0}, rows, truth)


def test_one_output_of_ridge_never_depends_on_the_others() -> None:
    rows, truth = lines()
    both, alone = ridge({}, rows, truth).predict(rows), ridge({}, rows, truth[:, [1]]).predict(rows)
    np.testing.assert_allclose(both[:, [1]], alone)


STAGES = {
    "plain network": {"latent_space": False},
    "no calibration": {"cpu_calibration": False},
    "constant KL weight": {"kl": "constant"},
    "no feedback": {"feedback_from": 0, "feedback_to": 0},
    "deviation of 1": {"optimal_sigma": False},
}


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_of_the_network_can_be_switched_and_makes_a_difference(stage: str) -> None:
    pytest.importorskip("torch")
    network = vector_models.load("network")
    rows, truth = lines(40)
    calibration = ProfiledRows(rows[:20] + 1, np.concatenate([rows, rows + 1]))
    whole = network(QUICK, rows, truth, seed=1, calibration=calibration)
    other = network({**QUICK, **STAGES[stage]}, rows, truth, seed=1, calibration=calibration)
    assert not np.allclose(whole.predict(rows), other.predict(rows), atol=1e-4)
    assert whole.latent(rows).shape == (40, 3)
    scaled = Standard.fit(calibration.every).apply(rows)
    assert np.allclose(other.latent(rows), scaled, atol=1e-5) == (stage == "plain network")


def test_the_optimal_deviation_is_the_error_itself() -> None:
    torch = pytest.importorskip("torch")
    from apportion.learn.relative.vae import NetworkSettings, SigmaVae

    rows = torch.zeros(4, 2)
    losses = {}
    for optimal in (True, False):
        vae = SigmaVae(2, NetworkSettings(optimal_sigma=optimal, latent=1, encoder_units=2))
        for parameter in vae.parameters():
            torch.nn.init.zeros_(parameter)
        torch.nn.init.constant_(vae.decoder[2].bias, 0.5)  # what it says of every row: an error of a half
        losses[optimal] = vae.loss(rows, 0.0, torch.Generator().manual_seed(0)).item()
    # Two features: error² / (2 σ²) + ln σ each, with σ the error or 1.
    assert losses[True] == pytest.approx(2 * (0.5 + np.log(0.5)), abs=1e-5)
    assert losses[False] == pytest.approx(2 * 0.125, abs=1e-5)


def test_the_weight_of_the_divergence_counts() -> None:
    torch = pytest.importorskip("torch")
    from apportion.learn.relative.vae import NetworkSettings, SigmaVae

    vae = SigmaVae(2, NetworkSettings(latent=1, encoder_units=2))
    for parameter in vae.encoder.parameters():
        torch.nn.init.zeros_(parameter)
    torch.nn.init.constant_(vae.encoder[2].bias, 2.0)  # mean 2, log variance 2
    rows = torch.ones(3, 2)
    light, heavy = (vae.loss(rows, weight, torch.Generator().manual_seed(0)).item() for weight in (0.0, 1.0))
    assert heavy - light == pytest.approx(0.5 * (4 + np.exp(2) - 1 - 2), rel=1e-4)


def test_settings_that_make_no_sense_are_refused() -> None:
    pytest.importorskip("torch")
    rows, truth = lines(10)
    for wrong, words in (
        ({"latent": 0}, "latent must be at least 1"),
        ({"feedback_from": 9, "feedback_to": 3}, "must not lie behind"),
    ):
        with pytest.raises(InvalidSetting, match=words):
            vector_models.load("network")(wrong, rows, truth)
    with pytest.raises(InvalidSetting, match="at least 1"):
        vector_models.load("bagged-boosting")({"bags": 0}, rows, truth)
