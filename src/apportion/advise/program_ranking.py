"""Configurations of a program put in order by a trained ranker, without measuring any."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apportion import weights
from apportion.data.configurations import ConfiguredGraph
from apportion.data.published.tpugraphs import graph_of_file
from apportion.errors import InvalidSetting
from apportion.learn.base import model_folder, open_predictor
from apportion.learn.ranking.rank_predictor import RankPredictor
from apportion.learn.ranking.recorded_runs import LAUNCH, tile_features
from apportion.learn.ranking.unmeasured import tiled
from apportion.learn.tuning.search import KnownTable
from apportion.measure.space import Configuration, Space
from apportion.program.hlo.jax import function_of, hlo_of, spec_of
from apportion.program.hlo.module import HloGraph, graph_of_hlo

CONFIDENCE = 0.9
FAMILIAR = 0.1
"Below this a program is farther from all kernels learned from than nine in ten of these are from another."
_MOST = 20_000
"Configurations that are put in order; of larger spaces so many are drawn."
_LAUNCH_NAMES = {
    "num_warps": "num_warps", "num_stages": "num_stages", "GROUP": "GROUP", "GROUP_M": "GROUP",
    "GROUP_SIZE_M": "GROUP", "SPLIT": "SPLIT", "SPLIT_K": "SPLIT",
}  # fmt: skip
"Parameters as people call them → as collections do."
_MOST_BOUNDS = 6

GraphOf = Callable[[Sequence[Configuration]], ConfiguredGraph]
"A program with these configurations, as a ranker sees it."


@dataclass(frozen=True)
class RankedConfiguration:
    """One configuration in the predicted order."""

    configuration: Configuration
    place: float
    "From 0 for the fastest to 1 for the slowest."
    interval: tuple[float, float]
    "It holds the true place with the ranking's confidence."

    def as_json(self) -> dict[str, Any]:
        """As `apportion rank predict --json` has it."""
        return {
            "configuration": dict(self.configuration),
            "place": round(self.place, 4),
            "interval": [round(end, 4) for end in self.interval],
        }


@dataclass(frozen=True)
class ProgramRanking:
    """Configurations of a program, those predicted to be the fastest first."""

    program: str
    model: str
    familiarity: float
    "From 1, for a mix of operations that was learned from, to 0, for one unlike all of them."
    confidence: float
    configurations: tuple[RankedConfiguration, ...]
    milliseconds: float
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """What `apportion rank predict --json` prints; warnings go another way."""
        return {
            "program": self.program,
            "model": self.model,
            "familiarity": round(self.familiarity, 4),
            "confidence": self.confidence,
            "configurations": [one.as_json() for one in self.configurations],
            "milliseconds": round(self.milliseconds, 3),
        }


@dataclass(frozen=True)
class TiledKernel:
    """A kernel whose tiles are to be chosen: what it computes, and which of its parameters mean what."""

    graph: HloGraph
    "Of a program that computes the same."
    output: tuple[str, ...] = ()
    "The parameters that are the tile of the result; told from their names where none is given."
    reduced: tuple[str, ...] = ()
    "Those that are the tile of the dimension that is reduced; likewise."

    @classmethod
    def of(
        cls, program: str | Callable[..., Any], shapes: Sequence[str] = (), *, output: Sequence[str] = (),
        reduced: Sequence[str] = (),
    ) -> TiledKernel:  # fmt: skip
        """The kernel that computes what a program does.

        Args:
            program: a JAX function, or file.py:name of one; or a file of HLO.
            shapes: what a function is called with: `f32[128,256]`.

        Raises:
            UnreadableFile, MalformedInput: there is no such program.
            InvalidSetting: it is not called with such arrays.
            MissingPackage: JAX is not installed.
        """
        return cls(_graph_of(program, shapes), tuple(output), tuple(reduced))

    def __call__(self, configurations: Sequence[Configuration]) -> ConfiguredGraph:
        """The kernel with these configurations, as a ranker sees it."""
        output, reduced = self._bounds(configurations[0])
        rows = [tile_features(_launch_of(one), LAUNCH, output, reduced) for one in configurations]
        return tiled(self.graph.name, self.graph, np.stack(rows))

    def _bounds(self, one: Configuration) -> tuple[tuple[str, ...], tuple[str, ...]]:
        for name in (*self.output, *self.reduced):
            if name not in one:
                raise InvalidSetting(f"There is no parameter {name!r}: there are {', '.join(one)}")
        rest = [name for name in one if name not in _LAUNCH_NAMES]
        reduced = self.reduced or tuple(
            name for name in rest if name.upper().endswith("K") and name not in self.output
        )
        output = self.output or tuple(name for name in rest if name not in reduced)
        for names in (output, reduced):
            if len(names) > _MOST_BOUNDS:
                raise InvalidSetting(
                    f"A tile has at most {_MOST_BOUNDS} dimensions, not {', '.join(names)}: name those of "
                    "the result with --tile and those of what is reduced with --reduced"
                )
        for name in (*output, *reduced, *(name for name in one if name in _LAUNCH_NAMES)):
            if not isinstance(one[name], int):
                raise InvalidSetting(f"{name} is {one[name]!r}: rankers know whole numbers alone")
        return output, reduced


def rank_configurations(
    graph_of: GraphOf, space: Space, *, model: str | Path | None = None, seed: int = 0
) -> ProgramRanking:
    """The configurations of a space in the order in which they are predicted to be fast.

    Args:
        graph_of: the program with configurations, such as a `TiledKernel`.
        model: the name or folder of a ranker; the shipped one for such configurations when not given.
        seed: draws configurations of a space that is too large to go through.

    Raises:
        UnknownName: there is no such model.
        InvalidSetting: the model ranks something else, or configurations of another kind.
    """
    began = time.perf_counter()
    chosen, graph = _configured(graph_of, space, seed)
    predictor, name = _ranker_for(graph, model)
    (answer,) = predictor.answer([graph], confidence=CONFIDENCE)
    order = np.argsort(answer.value, kind="stable").tolist()
    ranked = tuple(
        RankedConfiguration(
            chosen[place], float(answer.value[place]), (float(answer.low[place]), float(answer.high[place]))
        )
        for place in order
    )
    warnings: tuple[str, ...] = ()
    if answer.familiarity < FAMILIAR:
        warnings = (f"the program is unlike all that {name} learned from: measure, do not trust the order",)
    spent = 1e3 * (time.perf_counter() - began)
    return ProgramRanking(graph.name, name, answer.familiarity, CONFIDENCE, ranked, spent, warnings)


def predicted_start(
    graph_of: GraphOf, space: Space, *, model: str | Path | None = None, seed: int = 0
) -> tuple[KnownTable, str] | None:
    """What a ranker predicts of a space, for a search to start from, and which ranker.

    None for a program that the shipped ranker is not familiar with; a ranker that is named is believed.

    Raises:
        UnknownName, InvalidSetting: as `rank_configurations`.
    """
    chosen, graph = _configured(graph_of, space, seed)
    predictor, name = _ranker_for(graph, model)
    if len(chosen) < 2 or (model is None and predictor.trust.familiarity(graph) < FAMILIAR):
        return None
    scores = np.asarray(predictor.ranker.scores(graph), np.float64)
    return KnownTable(chosen, np.exp(scores - scores.mean()).tolist()), name


def _configured(
    graph_of: GraphOf, space: Space, seed: int
) -> tuple[Sequence[Configuration], ConfiguredGraph]:
    few = space.size <= _MOST
    chosen = space.configurations if few else space.draw(np.random.default_rng(seed), _MOST)
    return chosen, graph_of(chosen)


def _ranker_for(graph: ConfiguredGraph, model: str | Path | None) -> tuple[RankPredictor, str]:
    kind = graph.collection.partition(":")[0]
    shipped = weights.manifest().answering("ranking")
    fitting = [one.name for one in shipped if one.about.startswith(kind)]
    if model is None:
        if not fitting:
            raise InvalidSetting(f"No ranker of {kind}s is shipped: name one with --model")
        model = fitting[0]
    opened = open_predictor(model, "ranking")
    if not isinstance(opened, RankPredictor):
        raise InvalidSetting(f"{model} is a {type(opened).__name__}, and programs need a RankPredictor")
    if str(model) in {one.name for one in shipped} and str(model) not in fitting:
        raise InvalidSetting(f"{model} ranks no {kind}s: those that do are {', '.join(fitting)}")
    return opened, str(model) if str(model) in {one.name for one in shipped} else model_folder(model).name


def _launch_of(one: Configuration) -> Mapping[str, Any]:
    """A configuration with the collections' names of how a kernel is launched."""
    return {_LAUNCH_NAMES.get(name, name): value for name, value in one.items()}


def _graph_of(program: str | Callable[..., Any], shapes: Sequence[str]) -> HloGraph:
    if isinstance(program, str) and (":" not in program or Path(program).exists()):
        return graph_of_file(Path(program))
    function = function_of(program) if isinstance(program, str) else program
    name = program if isinstance(program, str) else getattr(program, "__name__", "function")
    return graph_of_hlo(hlo_of(function, [spec_of(shape) for shape in shapes]), name=name)
