"""RelativeFitted: relative performance by a forest, or by the σ-VAE and network of Nichols et al., in NumPy.

Its answers from counters alone are those of what was fitted, with sigmas from its errors on applications that
it had not seen. Once a time is known the ridge regressions that it also holds answer, as in `RelativeModel`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import read_artifact, write_artifact
from apportion.data.scaling import Standard
from apportion.errors import MalformedInput
from apportion.learn.forest import Forest
from apportion.learn.relative.relative_model import Numbers, RelativeModel
from apportion.learn.relative.vectors import VectorModel

KINDS = ("forest", "network")


@dataclass(frozen=True, eq=False)
class VectorForest:
    """Trees whose leaves hold a number for each system."""

    places: Forest
    "Its values are the numbers of leaves."
    values: Numbers  # (nodes, S)

    def predict(self, rows: Numbers) -> Numbers:
        """(N, S)."""
        leaf = self.places.each(rows).astype(np.int64)
        return np.asarray(self.values[leaf].mean(axis=1), np.float64)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is written to a file."""
        kept = {f"forest.{name}": values for name, values in self.places.arrays().items() if name != "value"}
        return {**kept, "values": self.values.astype(np.float32)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The forest that `arrays` gave."""
        parts = {n.removeprefix("forest."): v for n, v in arrays.items() if n.startswith("forest.")}
        numbers = np.arange(len(parts["feature"]), dtype=np.float32)
        return cls(Forest.of_arrays({**parts, "value": numbers}), arrays["values"].astype(np.float64))


@dataclass(frozen=True, eq=False)
class VectorNetwork:
    """The encoder's means and the layers behind them: linear maps with ReLU between."""

    scaling: Standard
    centre: Numbers  # (S,)
    encoder: tuple[tuple[Numbers, Numbers], ...]
    "Weights (I, O) and biases (O,) of each layer; none where the network reads the features themselves."
    head: tuple[tuple[Numbers, Numbers], ...]

    def predict(self, rows: Numbers) -> Numbers:
        """(N, S)."""
        seen = self.scaling.apply(rows)
        if self.encoder:
            seen = _through(self.encoder, seen)
            seen = seen[:, : seen.shape[1] // 2]  # the other half are the logarithms of variances
        return np.asarray(_through(self.head, seen) + self.centre, np.float64)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is written to a file."""
        kept = {
            f"{part}.{number}.{name}": values.astype(np.float32)
            for part, layers in (("encoder", self.encoder), ("head", self.head))
            for number, layer in enumerate(layers)
            for name, values in zip(("weight", "bias"), layer, strict=True)
        }
        scaling = {"scale.mean": self.scaling.mean, "scale.deviation": self.scaling.deviation}
        return {**kept, **scaling, "centre": self.centre}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The network that `arrays` gave."""

        def layers(part: str) -> tuple[tuple[Numbers, Numbers], ...]:
            count = sum(name.startswith(f"{part}.") for name in arrays) // 2
            return tuple(
                (
                    arrays[f"{part}.{number}.weight"].astype(np.float64),
                    arrays[f"{part}.{number}.bias"].astype(np.float64),
                )
                for number in range(count)
            )

        scaling = Standard(arrays["scale.mean"], arrays["scale.deviation"])
        return cls(scaling, arrays["centre"], layers("encoder"), layers("head"))


@dataclass(frozen=True, eq=False)
class _Head:
    """A fitted learner over some systems, as `RelativeModel` asks it."""

    fitted: VectorModel
    at: tuple[int, ...]

    def predict(self, rows: Numbers) -> Numbers:
        """(N, S): less the mean of these systems."""
        said = self.fitted.predict(rows)[:, self.at]
        return np.asarray(said - said.mean(axis=1, keepdims=True), np.float64)

    def spread(self, rows: Numbers) -> Numbers:
        """(N,): 1; nothing is known of how errors grow away from the known runs."""
        return np.ones(len(rows))


@dataclass(frozen=True, eq=False)
class RelativeFitted(RelativeModel):
    """What prediction needs."""

    kind: ClassVar[str] = "relative-fitted"
    "Its entry of `apportion.learn.predictors`."

    fitted: VectorForest | VectorNetwork | None = None
    errors: Numbers | None = None  # (N, S) of vectors of known runs, each application unknown to the learner
    systems: tuple[str, ...] = ()
    "Those of `fitted` and `errors`."

    @property
    def learner(self) -> str:
        """One of `KINDS`."""
        return "forest" if isinstance(self.fitted, VectorForest) else "network"

    @property
    def _at(self) -> tuple[int, ...]:
        return tuple(self.systems.index(name) for name in self.reference.systems)

    def _head(self, timed: int | None) -> Any:
        if timed is None and self.fitted is not None:
            return _Head(self.fitted, self._at)
        return super()._head(timed)

    def _left_out(self, timed: int | None) -> tuple[Numbers, Numbers]:
        if timed is None and self.errors is not None:
            errors = self.errors[:, self._at]
            return errors - errors.mean(axis=1, keepdims=True), np.ones(len(errors))
        return super()._left_out(timed)

    def save(self, folder: Path) -> None:
        super().save(folder)
        artifact, weights = read_artifact(folder)
        assert self.fitted is not None
        assert self.errors is not None
        about = {**artifact.hyperparameters, "learner": self.learner, "fitted_systems": list(self.systems)}
        fitted = {f"fitted.{name}": values for name, values in self.fitted.arrays().items()}
        described = replace(artifact, model=self.learner, hyperparameters=about, checksum="")
        write_artifact(folder, described, {**weights, **fitted, "errors": self.errors.astype(np.float32)})

    @classmethod
    def load(cls, folder: Path) -> Self:
        plain = RelativeModel.load(folder)
        artifact, weights = read_artifact(folder)
        arrays = {n.removeprefix("fitted."): v for n, v in weights.items() if n.startswith("fitted.")}
        try:
            kind = VectorForest if artifact.hyperparameters["learner"] == "forest" else VectorNetwork
            fitted, errors = kind.of_arrays(arrays), weights["errors"].astype(np.float64)
            systems = tuple(artifact.hyperparameters["fitted_systems"])
        except KeyError as error:
            raise MalformedInput(f"lacks {error}: train the model again", file=str(folder)) from error
        return cls(
            plain.name, plain.reference, plain.features, plain.strength, plain.timed_features,
            plain.timed_strength, plain.about, fitted, errors, systems,
        )  # fmt: skip


def _through(layers: tuple[tuple[Numbers, Numbers], ...], rows: Numbers) -> Numbers:
    for number, (weight, bias) in enumerate(layers):
        if number:
            rows = np.maximum(rows, 0)
        rows = rows @ weight + bias
    return rows
