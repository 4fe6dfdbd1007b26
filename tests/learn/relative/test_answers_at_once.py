"""Many runs answered at once get what each gets alone."""

from __future__ import annotations

import math

import numpy as np

from apportion.advise.relative_answers import shipped
from apportion.learn.relative.profile import Profile


def test_many_runs_at_once_are_answered_as_each_alone_whatever_times_are_known():
    model = shipped()
    known, drawing = model.reference, np.random.default_rng(1)
    names = known.systems
    seconds = [{}, {names[2]: 0.01}, {names[5]: 0.02, names[1]: 0.03}, {"another": 1.0}]
    queue = [
        Profile(str(at), dict(zip(known.counters, row.tolist(), strict=True)), seconds[at % 4])
        for at, row in enumerate(known.values * np.exp2(drawing.normal(0, 0.5, known.values.shape)))
    ]
    found = model.answer(queue, confidence=0.6827)
    for job, answer in zip(queue, found, strict=True):
        times = {name: math.log2(value) for name, value in job.seconds.items() if name in names}
        alone = model.vector(model.row_of(job.counters)[0], times)
        np.testing.assert_allclose([answer.value[name] for name in names], alone.vector, atol=1e-9)
        half = [(answer.high[name] - answer.low[name]) / 2 for name in names]
        np.testing.assert_allclose(half, alone.sigma, rtol=1e-3)
        assert answer.familiarity == alone.familiarity
    assert model.answer([]) == []
