"""AnalysisLearner: networks that label the nodes of programs, from a data-flow store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar, TextIO

from apportion.learn.experiment import Experiment
from apportion.learn.experiment_run import run
from apportion.learn.learner import Learner


class AnalysisLearner(Learner[Experiment]):
    """Trains one of `apportion.learn.models` on a task of `apportion.learn.tasks`."""

    question: ClassVar[str] = "data-flow"
    settings_type: ClassVar[type[Any]] = Experiment

    def train(self, folder: Path, *, resume: bool = False, progress: TextIO = sys.stderr) -> dict[str, Any]:
        return run(self.settings, folder, resume=resume, progress=progress)
