"""A network while it is fitted: where that stands, its weights' running mean, and going on after a stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.errors import InvalidSetting, MalformedInput
from apportion.learn.model import Checkpoint, Optimisation

_REPORT_EVERY = 20
"Steps between two readings of the loss; each makes the host wait for a GPU."
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"What Adam remembers of a parameter."


def is_reported(step: int, settings: Optimisation) -> bool:
    """Whether the mean loss since the last time is told after a step: also before each checkpoint, so that a
    run that goes on from there tells the same ones."""
    return step % _REPORT_EVERY == 0 or step % settings.validate_every == 0


@dataclass
class Progress:
    """Where a fit stands, weights and moments apart."""

    step: int = 0
    epoch: int = 0
    index: int = 0
    "The batch of the epoch that comes next, where batches have an order."
    seconds: float = 0.0
    best_score: float | None = None
    stale: int = 0
    "Validations since the best one."
    best: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    "The weights of the best one."

    def plain(self) -> dict[str, Any]:
        """All of it but the weights."""
        return {name: value for name, value in vars(self).items() if name != "best"}

    def ended(self, settings: Optimisation) -> bool:
        """Whether there is nothing more to do."""
        impatient = settings.patience > 0 and self.stale >= settings.patience
        enough = settings.enough > 0 and self.best_score is not None and self.best_score >= settings.enough
        return impatient or enough or settings.done(self.step, self.seconds) == 1.0

    def validated(self, score: float, network: nn.Module) -> bool:
        """Note a validation; whether it was the best, so that these weights are kept."""
        better = self.best_score is None or score > self.best_score
        if better:
            self.best_score, self.stale, self.best = score, 0, arrays_of(network)
        else:
            self.stale += 1
        return better


class Averages:
    """The running mean of a network's parameters; without `keep` there is none, and nothing is done."""

    def __init__(self, network: nn.Module, keep: float) -> None:
        self.keep = keep
        self._names = [name for name, _ in network.named_parameters()] if keep else []
        self._parameters = list(network.parameters()) if keep else []
        self._averages = [one.detach().clone() for one in self._parameters]

    def follow(self, keep: float | None = None) -> None:
        """Move towards what the parameters are now.

        Args:
            keep: what stays of the mean; `self.keep` when not given.
        """
        if self._averages:
            now = [one.detach() for one in self._parameters]
            torch._foreach_lerp_(self._averages, now, 1 - (self.keep if keep is None else keep))

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Meanwhile the parameters hold the mean, in the places where recorded work looks for them."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Parameter → its mean."""
        pairs = zip(self._names, self._averages, strict=True)
        return {name: average.cpu().numpy().copy() for name, average in pairs}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `arrays` gave."""
        for name, average in zip(self._names, self._averages, strict=True):
            average.copy_(torch.from_numpy(arrays[name].copy()))

    def _exchange(self) -> None:
        with torch.no_grad():
            for parameter, average in zip(self._parameters, self._averages, strict=True):
                kept = parameter.detach().clone()
                parameter.copy_(average)
                average.copy_(kept)


def checkpoint_of(
    network: nn.Module, optimiser: torch.optim.Optimizer, averages: Averages, progress: Progress
) -> Checkpoint:
    """Everything from which a fit can go on."""
    arrays = {f"network/{name}": array for name, array in arrays_of(network).items()}
    arrays |= {f"best/{name}": array for name, array in progress.best.items()}
    arrays |= {f"average/{name}": array for name, array in averages.arrays().items()}
    for name, parameter in network.named_parameters():
        for key, value in optimiser.state[parameter].items():
            arrays[f"optimiser/{key}/{name}"] = value.cpu().numpy().copy()
    return Checkpoint(arrays, progress.plain())


def restore(
    checkpoint: Checkpoint,
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    averages: Averages,
    load: Callable[[Mapping[str, NDArray[Any]]], None] | None = None,
) -> Progress:
    """Put a network, its optimiser and its averages where they were; where the fit stood.

    Args:
        load: gives the network its weights, where more is to be done than `load_arrays`.

    Raises:
        MalformedInput: the checkpoint is of another network.
    """
    arrays = checkpoint.arrays
    try:
        (load or partial(load_arrays, network))(_under("network/", arrays))
        averages.load(_under("average/", arrays))
        for name, parameter in network.named_parameters():
            # A parameter that no step has reached yet has no moments; else it has all of them.
            keys = _MOMENTS if any(f"optimiser/{key}/{name}" in arrays for key in _MOMENTS) else ()
            optimiser.state[parameter] = {
                key: torch.from_numpy(arrays[f"optimiser/{key}/{name}"].copy()).to(parameter.device)
                for key in keys
            }
        return Progress(best=_under("best/", arrays), **checkpoint.state)
    except (KeyError, TypeError, RuntimeError) as error:
        raise MalformedInput(
            f"does not fit this experiment's network ({error}). Start anew, without --resume.",
            file="checkpoint",
        ) from error


def learning_rate(settings: Optimisation, step: int, seconds: float) -> float:
    """The rate of a step: it rises over the warm-up, then follows the schedule to whichever end is nearer."""
    rate = settings.learning_rate * min(1.0, (step + 1) / (settings.warmup_steps + 1))
    if settings.schedule == "constant":
        return rate
    return rate * 0.5 * (1 + math.cos(math.pi * settings.done(step, seconds)))


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set an optimiser's learning rate, in the place where recorded work looks for it."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def finite(loss: float, step: int) -> float:
    """The loss.

    Raises:
        InvalidSetting: it is infinite, or no number.
    """
    if not math.isfinite(loss):
        raise InvalidSetting(f"The loss is {loss} after {step} steps. Lower learning_rate, or set clip_norm.")
    return loss


def device_called(name: str) -> torch.device:
    """The device that a network runs on.

    Raises:
        InvalidSetting: there is none of this name here.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidSetting(f"No device is called {name!r}; use cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise InvalidSetting(f"Networks run on cpu or cuda, not {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidSetting("torch finds no CUDA device here. Set device = 'cpu'.")
    return device


def arrays_of(network: nn.Module) -> dict[str, NDArray[Any]]:
    """A network's weights, and whatever else belongs to its state."""
    return {name: value.detach().cpu().numpy().copy() for name, value in network.state_dict().items()}


def load_arrays(network: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Give a network what `arrays_of` gave.

    Raises:
        RuntimeError: they are of another network.
    """
    network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})


def _under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
