"""Fitting forests and networks of relative performance, each application held out once for the errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.errors import UnknownName
from apportion.learn import vector_models
from apportion.learn.forest import Forest
from apportion.learn.relative.relative_fitted import KINDS, RelativeFitted, VectorForest, VectorNetwork
from apportion.learn.relative.relative_model import Numbers, RelativeModel
from apportion.learn.relative.vectors import ProfiledRows

SETTINGS: dict[str, dict[str, Any]] = {
    "forest": {"trees": 100, "max_features": 0.3, "leaf": 2},
    "network": {"units": 256},
}
"Of the learners. The network has layers of a quarter of the published width: AIWC has a hundred runs."


def fitted_of(plain: RelativeModel, kind: str, *, seed: int = 0) -> RelativeFitted:
    """A model with the runs of `plain`, answered from counters by a forest or a network.

    Raises:
        UnknownName: there is no such kind.
        MissingPackage: it needs scikit-learn, or torch.
    """
    if kind not in KINDS:
        raise UnknownName("learner of relative performance", kind, KINDS)
    rows, truth = plain.known_rows, plain.truth
    application = np.array(plain.reference.application)
    errors = np.zeros_like(truth)
    for name in np.unique(application):
        test = application == name
        learned = _fit(kind, rows[~test], truth[~test], seed)
        errors[test] = truth[test] - learned.predict(rows[test])
    return RelativeFitted(
        f"{plain.name}-{kind}", plain.reference, plain.features, plain.strength, plain.timed_features,
        plain.timed_strength, plain.about, _fit(kind, rows, truth, seed), errors, plain.reference.systems,
    )  # fmt: skip


def _fit(kind: str, rows: Numbers, truth: Numbers, seed: int) -> VectorForest | VectorNetwork:
    if kind == "forest":
        grown = vector_models.load("extra-trees")(SETTINGS[kind], rows, truth, seed=seed)
        return _forest_of(grown.parts[0].fitted)
    # Counters are those of the program wherever it runs: on CPUs the rows look as they do everywhere.
    calibration = ProfiledRows(rows, rows)
    network = vector_models.load("network")(SETTINGS[kind], rows, truth, seed=seed, calibration=calibration)
    encoder = () if network.encoder is None else _layers_of(network.encoder.encoder)
    return VectorNetwork(network.scaling, network.centre, encoder, _layers_of(network.head))


def _layers_of(module: Any) -> tuple[tuple[Numbers, Numbers], ...]:
    """Weights and biases of the linear layers of a sequence of torch's."""
    return tuple(
        (
            layer.weight.detach().numpy().T.astype(np.float64),
            layer.bias.detach().numpy().astype(np.float64),
        )
        for layer in module
        if hasattr(layer, "weight")
    )


def _forest_of(grown: Any) -> VectorForest:
    """scikit-learn's trees of several outputs, end to end."""
    feature, threshold, left, right, values, root = [], [], [], [], [], []
    first, depth = 0, 0
    for tree in (one.tree_ for one in grown.estimators_):
        itself = np.arange(tree.node_count)
        leaf = tree.children_left < 0
        root.append(first)
        feature.append(np.where(leaf, 0, tree.feature))
        below = tree.threshold.astype(np.float32)
        below = np.where(below > tree.threshold, np.nextafter(below, np.float32(-np.inf)), below)
        threshold.append(np.where(leaf, np.float32(0), below))
        left.append(np.where(leaf, itself, tree.children_left) + first)
        right.append(np.where(leaf, itself, tree.children_right) + first)
        values.append(tree.value[:, :, 0])
        first, depth = first + tree.node_count, max(depth, tree.max_depth)
    places = Forest(
        np.concatenate(feature).astype(np.int16), np.concatenate(threshold).astype(np.float32),
        np.concatenate(left).astype(np.int32), np.concatenate(right).astype(np.int32),
        np.arange(first, dtype=np.float32), np.array(root, np.int32), depth,
    )  # fmt: skip
    return VectorForest(places, np.concatenate(values).astype(np.float32).astype(np.float64))
