"""What every predictor must hold; a test class derives from it and says which one, and what to ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.data.artifact import DESCRIPTION, WEIGHTS, read_description
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.learn import predictors
from apportion.learn.base import QUESTIONS, Answer, Predictor, open_predictor


class PredictorChecks:
    """Derive, write an artifact in `artifact` and name queries in `queries`:

    ```python
    class TestMine(PredictorChecks):
        def artifact(self, folder: Path) -> None:
            Mine(0.3).save(folder)

        def queries(self) -> list[Any]:
            return [KernelQuery(None, 4096, 64, known_code=code) for code in (few, many)]
    ```
    """

    def artifact(self, folder: Path) -> None:
        """Write the predictor's artifact to an empty folder."""
        raise TypeError(f"{type(self).__name__} must write the artifact of its predictor")

    def queries(self) -> Sequence[Any]:
        """Two different queries at least, which the predictor can answer."""
        raise TypeError(f"{type(self).__name__} must have queries for its predictor")

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """A folder with the artifact."""
        folder = tmp_path / "model"
        folder.mkdir()
        self.artifact(folder)
        return folder

    def opened(self, folder: Path) -> Predictor[Any, Any]:
        """The predictor, found as users find it."""
        return open_predictor(folder)

    def test_its_artifact_names_a_predictor_that_answers_a_known_question(self, folder: Path) -> None:
        described = read_description(folder)
        assert described.predictor in predictors
        assert predictors.load(described.predictor).question in QUESTIONS

    def test_every_query_gets_an_answer_with_an_interval_around_it(self, folder: Path) -> None:
        answers = self.opened(folder).answer(self.queries(), confidence=0.8)
        assert len(answers) == len(self.queries())
        for answer in answers:
            assert answer.confidence == 0.8
            assert 0 <= answer.familiarity <= 1
            low, value, high = _numbers(answer.low), _numbers(answer.value), _numbers(answer.high)
            assert (low <= value).all()
            assert (value <= high).all()

    def test_more_confidence_never_narrows_an_interval(self, folder: Path) -> None:
        predictor = self.opened(folder)
        for unsure, sure in zip(
            predictor.answer(self.queries(), confidence=0.6),
            predictor.answer(self.queries(), confidence=0.95),
            strict=True,
        ):
            assert (_numbers(sure.low) <= _numbers(unsure.low) + 1e-9).all()
            assert (_numbers(sure.high) >= _numbers(unsure.high) - 1e-9).all()

    def test_many_queries_get_the_answers_that_each_gets_alone(self, folder: Path) -> None:
        predictor = self.opened(folder)
        together = predictor.answer(self.queries())
        for answer, query in zip(together, self.queries(), strict=True):
            (alone,) = predictor.answer([query])
            assert _all(alone) == pytest.approx(_all(answer), abs=1e-6)

    def test_no_queries_get_no_answers(self, folder: Path) -> None:
        assert list(self.opened(folder).answer([])) == []

    def test_a_confidence_outside_0_to_1_is_refused(self, folder: Path) -> None:
        with pytest.raises(InvalidSetting, match="confidence must lie between 0 and 1"):
            self.opened(folder).answer(self.queries(), confidence=1.5)

    def test_damaged_or_missing_weights_are_noticed(self, folder: Path) -> None:
        data = bytearray((folder / WEIGHTS).read_bytes())
        data[-1] ^= 1
        (folder / WEIGHTS).write_bytes(bytes(data))
        with pytest.raises(MalformedInput, match="checksum"):
            self.opened(folder)
        (folder / WEIGHTS).unlink()
        with pytest.raises(UnreadableFile):
            self.opened(folder)
        assert (folder / DESCRIPTION).exists()


def _numbers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return np.array([value[key] for key in sorted(value)], np.float64)
    return np.asarray(value, np.float64)


def _all(answer: Answer[Any]) -> list[float]:
    parts = [np.ravel(_numbers(part)) for part in (answer.low, answer.value, answer.high)]
    return [*np.concatenate(parts).tolist(), answer.familiarity]
