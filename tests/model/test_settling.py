"""Where the bound between labelled and not lies: chosen for F1 on what is known."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from apportion.model.programl import best_margin


def _f1(labelled: np.ndarray, labels: np.ndarray) -> float:
    return 2 * float((labelled & (labels == 1)).sum()) / float(labelled.sum() + labels.sum())


def test_the_margin_is_the_best_of_all() -> None:
    generator = np.random.default_rng(3)
    labels = (generator.random(400) < 0.1).astype(np.int64)
    margins = (generator.normal(size=400) + 2 * labels - 2).astype(np.float32)
    found = best_margin(margins, labels)
    tried = [_f1(margins > bound, labels) for bound in np.linspace(-6, 4, 2001)]
    assert _f1(margins > found, labels) == pytest.approx(max(tried))
    assert max(tried) > _f1(margins > 0, labels)


def test_nodes_with_one_margin_are_not_told_apart() -> None:
    margins = np.array([2.0, -0.1, -0.1, -0.1, -3.0], np.float32)
    found = best_margin(margins, np.array([1, 1, 1, 0, 0]))
    assert -3.0 < found < -0.1  # all three or none


def test_nothing_is_moved_for_nothing() -> None:
    margins = np.array([2.0, 1.0, -1.0], np.float32)
    assert best_margin(margins, np.array([1, 1, 0])) == 0.0
    assert best_margin(margins, np.array([0, 0, 0])) == 0.0
