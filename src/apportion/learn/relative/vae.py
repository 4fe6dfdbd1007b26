"""The network of Nichols et al.: a σ-VAE whose latent space feeds a deep regressor; every stage is optional.

Stages, in order: the VAE is calibrated on rows profiled on CPUs; it goes on with all rows while the weight of
the KL divergence rises; over a range of epochs the regressor's loss flows back into the encoder; at last the
regressor, 3 layers of 1,024 units, learns from the latent means. Without the latent space, the regressor
alone is the plain network (MLP) to compare with. The decoder's deviation is the optimal one (Rybkin et al.,
2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting
from apportion.learn.relative.vectors import ProfiledRows
from apportion.settings import convert

Numbers = NDArray[np.float64]
_LEAST_LOG_SIGMA = -6.0


@dataclass(frozen=True)
class NetworkSettings:
    """Sizes, epochs, and which stages there are."""

    latent_space: bool = True
    "Without, the regressor reads the features themselves."
    cpu_calibration: bool = True
    "Begin with rows profiled on CPUs; without such rows there is nothing to do."
    optimal_sigma: bool = True
    "The decoder's deviation follows its error; otherwise it is 1."
    kl: Literal["rising", "constant"] = "rising"
    "The weight of the KL divergence: from 0 to 1 over the first half of the epochs, or 1 throughout."
    feedback_from: int = 20
    feedback_to: int = 50
    "The epochs in which the regressor's loss joins the VAE's; the same number twice for none."
    latent: int = 8
    encoder_units: int = 64
    units: int = 1024
    layers: int = 3
    calibration_epochs: int = 20
    epochs: int = 60
    regressor_epochs: int = 60
    batch: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        for name in ("latent", "encoder_units", "units", "layers", "epochs", "regressor_epochs", "batch"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.feedback_from <= self.feedback_to:
            raise InvalidSetting("feedback_from must not lie behind feedback_to")


class SigmaVae(nn.Module):
    """Encoder to a Gaussian in the latent space, and a decoder with one deviation for all features."""

    def __init__(self, features: int, settings: NetworkSettings) -> None:
        super().__init__()
        units, latent = settings.encoder_units, settings.latent
        self.encoder = nn.Sequential(nn.Linear(features, units), nn.ReLU(), nn.Linear(units, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, units), nn.ReLU(), nn.Linear(units, features))
        self.optimal_sigma = settings.optimal_sigma

    def encode(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance (N, L)."""
        mean, log_variance = self.encoder(rows).chunk(2, dim=1)
        return mean, log_variance.clamp(-10, 10)

    def loss(self, rows: Tensor, kl_weight: float, random: torch.Generator) -> Tensor:
        """The negative evidence bound of a batch, per row."""
        mean, log_variance = self.encode(rows)
        drawn = mean + torch.exp(log_variance / 2) * torch.randn(mean.shape, generator=random)
        error = (self.decoder(drawn) - rows) ** 2
        if self.optimal_sigma:
            # The deviation that makes these errors likeliest is their root mean square.
            log_sigma = (0.5 * torch.log(error.mean() + 1e-12)).clamp(min=_LEAST_LOG_SIGMA)
        else:
            log_sigma = torch.zeros(())
        likelihood = (error / (2 * torch.exp(2 * log_sigma)) + log_sigma).sum(dim=1).mean()
        kl = 0.5 * (mean**2 + torch.exp(log_variance) - 1 - log_variance).sum(dim=1).mean()
        loss: Tensor = likelihood + kl_weight * kl
        return loss


def regressor(features: int, outputs: int, settings: NetworkSettings) -> nn.Sequential:
    """Layers of ReLU units."""
    layers: list[nn.Module] = []
    for number in range(settings.layers):
        layers += [nn.Linear(features if number == 0 else settings.units, settings.units), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(settings.units, outputs))


class Network:
    """A fitted network."""

    def __init__(self, scaling: Standard, centre: Numbers, encoder: SigmaVae | None, head: nn.Module) -> None:
        self.scaling, self.centre, self.encoder, self.head = scaling, centre, encoder, head

    def latent(self, rows: Numbers) -> Numbers:
        """(N, L): where rows lie in the latent space; the scaled features where there is none."""
        with torch.no_grad():
            seen = _tensor(self.scaling.apply(rows))
            place = seen if self.encoder is None else self.encoder.encode(seen)[0]
            return np.asarray(place.numpy(), np.float64)

    def predict(self, rows: Numbers) -> Numbers:
        """(N, S)."""
        with torch.no_grad():
            said: Numbers = self.head(_tensor(self.latent(rows))).numpy().astype(np.float64) + self.centre
            return said


def network(
    settings: Mapping[str, Any],
    rows: Numbers,
    truth: Numbers,
    *,
    seed: int = 0,
    calibration: ProfiledRows | None = None,
) -> Network:
    """Fit every stage that the settings name."""
    chosen = convert(NetworkSettings, dict(settings), source="network")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random = torch.Generator().manual_seed(seed)
        unlabelled = rows if calibration is None else calibration.every
        scaling, centre = Standard.fit(unlabelled), truth.mean(axis=0)
        seen, target = _tensor(scaling.apply(rows)), _tensor(truth - centre)
        if not chosen.latent_space:
            head = regressor(rows.shape[1], truth.shape[1], chosen)
            _fit_head(head, seen, target, chosen, random)
            return Network(scaling, centre, None, head)
        vae = SigmaVae(rows.shape[1], chosen)
        if chosen.cpu_calibration and calibration is not None:
            _fit_vae(
                vae, _tensor(scaling.apply(calibration.cpu)), chosen, random, epochs=chosen.calibration_epochs
            )
        _fit_vae(
            vae,
            _tensor(scaling.apply(unlabelled)),
            chosen,
            random,
            epochs=chosen.epochs,
            labelled=(seen, target),
        )
        with torch.no_grad():
            latent, _ = vae.encode(seen)
        head = regressor(chosen.latent, truth.shape[1], chosen)
        _fit_head(head, latent, target, chosen, random)
        return Network(scaling, centre, vae, head)


def _fit_vae(
    vae: SigmaVae,
    rows: Tensor,
    settings: NetworkSettings,
    random: torch.Generator,
    *,
    epochs: int,
    labelled: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Train the VAE; with labelled rows, the feedback of a regressor joins in its range of epochs."""
    feeds_back = labelled is not None and settings.feedback_to > settings.feedback_from
    helper: nn.Module | None = None
    parameters = list(vae.parameters())
    if feeds_back:
        assert labelled is not None
        helper = regressor(settings.latent, labelled[1].shape[1], settings)
        parameters += list(helper.parameters())
    optimiser = torch.optim.Adam(parameters, settings.learning_rate, weight_decay=settings.weight_decay)
    for epoch in range(epochs):
        rising = settings.kl == "rising" and labelled is not None
        weight = min(1.0, epoch / max(1, epochs // 2)) if rising else 1.0
        for number, part in enumerate(_batches(len(rows), settings, random)):
            loss = vae.loss(rows[part], weight, random)
            # Once an epoch: all labelled rows at a time are as many as one batch.
            if helper is not None and number == 0 and settings.feedback_from <= epoch < settings.feedback_to:
                assert labelled is not None
                latent, _ = vae.encode(labelled[0])
                loss = loss + nn.functional.mse_loss(helper(latent), labelled[1])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def _fit_head(
    head: nn.Module, rows: Tensor, target: Tensor, settings: NetworkSettings, random: torch.Generator
) -> None:
    optimiser = torch.optim.Adam(
        head.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
    )
    for _ in range(settings.regressor_epochs):
        for part in _batches(len(rows), settings, random):
            loss = nn.functional.mse_loss(head(rows[part]), target[part])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def _tensor(values: Numbers) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))


def _batches(rows: int, settings: NetworkSettings, random: torch.Generator) -> tuple[Tensor, ...]:
    return torch.split(torch.randperm(rows, generator=random), settings.batch)
