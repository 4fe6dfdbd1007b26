"""What every learner must hold; a test class derives from it and says which one, with what settings."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from apportion.data.artifact import WEIGHTS, read_artifact
from apportion.errors import AlreadyWritten, InvalidSetting
from apportion.jobs.holding import held
from apportion.learn import learners, predictors
from apportion.learn.base import open_predictor
from apportion.learn.experiment_run import RESULT, SETTINGS
from apportion.learn.learner import Learner


class LearnerChecks:
    """Derive, name the learner, and give settings with which it is done in seconds:

    ```python
    class TestMine(LearnerChecks):
        name = "mine"

        def settings(self, folder: Path) -> dict[str, Any]:
            return {"data": str(small_table(folder)), "trees": 2}
    ```
    """

    name: str
    "The learner's entry of `apportion.learn.learners`."

    def settings(self, folder: Path) -> dict[str, Any]:
        """What a TOML file would say, without its line `learner`; data may be written to the folder."""
        raise TypeError(f"{type(self).__name__} must have settings for its learner")

    def made(self, folder: Path, **changes: Any) -> Learner[Any]:
        """The learner with its settings."""
        folder.mkdir(exist_ok=True)
        kind: type[Learner[Any]] = learners.load(self.name)
        return kind.create({**self.settings(folder), **changes})

    def test_it_leaves_an_artifact_that_answers_the_same_question(self, tmp_path: Path) -> None:
        learner = self.made(tmp_path / "data")
        result = learner.train(tmp_path / "run", progress=io.StringIO())
        artifact, arrays = read_artifact(tmp_path / "run")
        assert arrays
        assert artifact.experiment
        assert predictors.load(artifact.predictor).question == learner.question
        open_predictor(tmp_path / "run", learner.question)
        assert result["test"] if "test" in result else result["evaluation"]
        assert json.loads((tmp_path / "run" / RESULT).read_text()) == json.loads(json.dumps(result))
        assert (tmp_path / "run" / SETTINGS).exists()

    def test_the_same_settings_give_the_same_weights(self, tmp_path: Path) -> None:
        for name in ("first", "second"):
            self.made(tmp_path / "data").train(tmp_path / name, progress=io.StringIO())
        first, second = ((tmp_path / name / WEIGHTS).read_bytes() for name in ("first", "second"))
        assert first == second

    def test_a_folder_with_a_run_is_kept_and_a_finished_run_is_only_read(self, tmp_path: Path) -> None:
        learner = self.made(tmp_path / "data")
        result = learner.train(tmp_path / "run", progress=io.StringIO())
        before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
        with pytest.raises(InvalidSetting, match="holds a run already"):
            learner.train(tmp_path / "run", progress=io.StringIO())
        again = learner.train(tmp_path / "run", resume=True, progress=io.StringIO())
        assert json.loads(json.dumps(again)) == json.loads(json.dumps(result))
        after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
        assert after == before

    def test_a_folder_that_is_not_its_own_is_left_alone(self, tmp_path: Path) -> None:
        learner = self.made(tmp_path / "data")
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "notes.txt").write_text("mine")
        with pytest.raises(AlreadyWritten, match=r"holds files of something else, such as notes\.txt"):
            learner.train(tmp_path / "mine", progress=io.StringIO())
        assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
        with held(tmp_path / "run"), pytest.raises(AlreadyWritten, match="is being written by process"):
            learner.train(tmp_path / "run", progress=io.StringIO())

    def test_an_unknown_setting_is_refused_by_name(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidSetting, match="colour"):
            self.made(tmp_path / "data", colour=3)
