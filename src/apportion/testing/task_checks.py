"""What every task must hold; a test class derives from it and names the task."""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.learn.task import Task


class TaskChecks:
    """Derive, set `task`, and let pytest collect the class."""

    task: Task[Any]

    def test_it_asks_a_question(self) -> None:
        assert self.task.question.endswith("?")

    def test_scores_for_one_output_alone_decide_for_it(self) -> None:
        for output in range(self.task.outputs):
            scores = np.zeros((3, self.task.outputs), np.float32)
            scores[:, output] = 1
            assert (np.asarray(self.task.decide(scores)) == output).all()

    def test_a_perfect_answer_has_the_best_score_and_its_opposite_does_not(self) -> None:
        truth = np.array([0, 1, 1, 0, 1], np.uint8)
        best = self.task.metrics[self.task.best]
        assert best(truth, truth) == 1.0
        assert best(truth, 1 - truth) < 1.0
