"""What the paper's layout of rows does to a score: each run once for every system it was profiled on."""

from __future__ import annotations

import numpy as np

from apportion.learn import vector_models
from apportion.learn.relative.performance import SLOWEST, log_times_of, measures_of, r_squared, vector_of
from apportion.learn.relative.relative_table import RelativeTable

LAYOUTS = ("rows at random", "runs at random", "applications")


def stacked_scores(table: RelativeTable, *, seed: int = 1, parts: int = 5) -> dict[str, dict[str, float]]:
    """Measures of the paper's random forest on stacked rows, for three ways to hold a fifth of them out.

    A row is a run as profiled on one system: its counters and its time there. All rows of a run have the same
    label, so that rows drawn at random leave a run's label in the training set almost always.
    """
    rows = np.concatenate([table.features("counters", times) for times in table.log_times.T])
    runs = np.tile(np.arange(len(table.runs)), len(table.systems))
    _, application = np.unique(np.array(table.application), return_inverse=True)
    truth = vector_of(table.log_times, SLOWEST)[runs]
    groups = {
        LAYOUTS[0]: np.arange(len(rows)), LAYOUTS[1]: runs, LAYOUTS[2]: application[runs]
    }  # fmt: skip
    forest = vector_models.load("random-forest")
    found = {}
    for name, group in groups.items():
        count = int(group.max()) + 1
        part = np.random.default_rng(seed).permutation(count)[group] % parts
        said = np.zeros_like(truth)
        for number in range(parts):
            test = part == number
            said[test] = forest({"trees": 60}, rows[~test], truth[~test], seed=seed).predict(rows[test])
        found[name] = measures_of(table.log_times[runs], log_times_of(said, SLOWEST))
        # As scikit-learn scores a forest: what it says, not rescaled so that its own largest number is 1.
        found[name]["r2_as_said"] = r_squared(truth, said)
    return found
