"""RankLearner: rankers of configurations, from a configuration store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar, TextIO

from apportion.learn.learner import Learner
from apportion.learn.ranking.ranking_run import RankingExperiment, run_ranking


class RankLearner(Learner[RankingExperiment]):
    """Trains one of `apportion.learn.rankers`."""

    question: ClassVar[str] = "ranking"
    settings_type: ClassVar[type[Any]] = RankingExperiment

    def train(self, folder: Path, *, resume: bool = False, progress: TextIO = sys.stderr) -> dict[str, Any]:
        return run_ranking(self.settings, folder, resume=resume, progress=progress)
