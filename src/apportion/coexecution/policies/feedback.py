"""The policy `learned+feedback`: a forecast to begin with, then what launches took.

The choice of the next launch is the one that is expected to end soonest: a device alone, a new cut, or a cut
that was seen. The second launch explores: another device alone that may do about as well is tried once, or
sharing where it is expected to win. Later on, a launch after another cut takes longer, and so does the one
after that. What wins only if the forecast is wrong by more is tried once, too, but when one launch counts
little: sharing, or another device alone where sharing costs too much to show what it takes. Where no model
spoke, but calibrated speeds, it is tried at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from apportion.coexecution.cuts import CostModel
from apportion.coexecution.forecast import Forecast
from apportion.coexecution.observations import Choice, Observations, median_of
from apportion.coexecution.policies.base import Policy, Situation
from apportion.coexecution.policies.learned import (
    PREDICTION,
    PredictionSettings,
    best_shared,
    everything,
    predicted,
)
from apportion.errors import InvalidSetting
from apportion.runtime.split import Split


@dataclass(frozen=True)
class FeedbackSettings:
    """The policy's numbers. Times are in seconds, ratios have no unit.

    All were chosen on rehearsals over measured curves of the suite, on a 16-core Xeon with an H200, and are
    therefore tuned on the kernels that `docs/results/co-execution` reports.
    """

    new_cut: float = 0.97
    "Try a new cut if it promises less than this times the best time so far."
    unseen_cut: float = 0.9
    """Try a cut that was never launched if it promises less than this times a device alone whose time is
    known."""
    probe_share: float = 0.1
    """The share of a device that only shows its speed, where it is as fast as the known one; smaller if it is
    slower."""
    probe_limit: float = 1.0
    "Such a part may take at most this times what the known device takes alone, by the forecast."
    later_share: float = 0.8
    "After the second launch, try sharing if it promises less than this times the best device alone."
    later: int = 10
    """Launches after which one launch counts little, so that what may win is tried although it is not
    expected to."""
    alike: float = 0.4
    """A forecast that is off by a factor f for the devices seen is off by f to this power for one that was
    not. Measured with suites held out of the campaign: 0.26 for the GPU given the CPU, 0.59 for the CPU."""
    surprise: float = 1.15
    "A launch is surprising if it takes this times what it was chosen for, and `jitter` seconds more."
    jitter: float = 1e-4
    "Seconds by which any launch may be late without being surprising."
    explore: float = 1.4
    """Explore a device at the second launch if its predicted time is below this times the best time so far.
    If forecasts are off by a factor of 1.5 and thirty launches follow, more is gained than lost."""
    short: float = 1e-3
    "Seconds of a launch up to which that is not done: most of it is what host and drivers do, on any device."
    explore_later: float = 1.1
    "The same after a shared launch that took what was predicted, and where the first device was misjudged."
    explore_far: float = 1.5
    "The same where a device alone took `wrong` times the best cut: the others must be the better ones."
    wrong: float = 1.25
    "A device that was tried alone was the wrong one if it took this times the best known cut."
    misjudged: float = 1.5
    "The forecast was wrong about the kernel if the first launch took this times what it said."

    def __post_init__(self) -> None:
        for each in fields(self):
            if not getattr(self, each.name) > 0:
                raise InvalidSetting(f"{each.name} must be more than 0, not {getattr(self, each.name)}")


FEEDBACK = FeedbackSettings()


class FeedbackPolicy(Policy):
    """A forecast to begin with, then what launches took."""

    learns = True

    def __init__(
        self, settings: FeedbackSettings = FEEDBACK, prediction: PredictionSettings = PREDICTION
    ) -> None:
        self.settings, self.prediction = settings, prediction

    def choose(self, situation: Situation, seen: Observations) -> Choice:
        """The split that is expected to end soonest, or one that is tried to see what it takes."""
        if situation.obstacle:
            return one_device(situation, seen, self.settings)
        if not seen.launches:
            return predicted(situation.forecast, tuple(situation.names), self.prediction)
        return _Decision(situation, seen, self.settings, self.prediction).choice()

    def stands(self, seen: Observations, choice: Choice, seconds: float) -> bool:
        """Whether there is nothing to choose anew: the choice took what it was chosen for, or longer for the
        first time, which may be noise if it was launched before, no device had to wait long for another, and
        it is not yet time to try something else."""
        latest = seen.launches[-1]
        if seen.noted == self.settings.later or (
            seen.noted < self.settings.later and latest.uneven(seen.settings.uneven)
        ):
            return False
        before, seen.surprised = seen.surprised, surprising(choice, seconds, self.settings)
        if choice.seconds is None or not seen.surprised:
            return choice.seconds is not None
        return not before and sum(seen.near(latest.shares, each.shares) for each in seen.launches) > 1


def surprising(choice: Choice, seconds: float, settings: FeedbackSettings = FEEDBACK) -> bool:
    """Whether a launch under a choice that took so long was expected to end sooner."""
    return choice.seconds is not None and seconds >= settings.surprise * choice.seconds + settings.jitter


def one_device(situation: Situation, seen: Observations, settings: FeedbackSettings = FEEDBACK) -> Choice:
    """The device for the next launch of what cannot be shared: the fastest one, as far as that is known; one
    that is expected to be faster is tried, and later on one that may be."""
    names, known, forecast = situation.names, seen.alone(), situation.forecast
    said = f"one device: {situation.obstacle}"
    if not known:
        expected = {name: forecast.models[name].seconds(1.0) for name in names}
        return Choice(Split.alone(min(expected, key=lambda name: expected[name])), None, said)
    best = min(known, key=lambda name: known[name])
    models = _models(seen, names, forecast, settings)
    hope = forecast.spread if _dares(seen, forecast, settings) else 1.0
    for name in names:
        if name not in known and models[name].seconds(1.0) / hope < settings.unseen_cut * known[best]:
            return Choice(Split.alone(name), None, f"{said}; {name} is tried once")
    return Choice(Split.alone(best), known[best], said)


class _Decision:
    """What is weighed at one launch, after the first."""

    def __init__(
        self,
        situation: Situation,
        seen: Observations,
        settings: FeedbackSettings,
        prediction: PredictionSettings,
    ) -> None:
        self.seen, self.forecast, self.groups = seen, situation.forecast, situation.groups
        self.settings, self.prediction, self.names = settings, prediction, situation.names
        self.known = seen.alone()
        self.models = _models(seen, self.names, self.forecast, settings)
        self.said = " and ".join(self.known)
        # What shared launches took beyond their devices: merging, and starting and waiting for two.
        beyond = [each.seconds - max(each.devices.values()) for each in seen.launches if each.alone is None]
        self.shared_before = bool(beyond)
        self.sharing = median_of(beyond) if beyond else self.forecast.sharing_seconds

    def choice(self) -> Choice:
        settings, known, seen, names = self.settings, self.known, self.seen, self.names
        alone = {name: known.get(name, self.models[name].seconds(1.0)) for name in names}
        # A device that was never launched alone must promise more than one that was: it may be wrong.
        doubted = {
            name: alone[name] / (1.0 if name in known or not known else settings.unseen_cut) for name in names
        }
        single = min(doubted, key=lambda name: doubted[name])
        shared = best_shared(self.models, self.sharing, self.groups)
        split, seconds = shared or (everything(single, names), alone[single])
        if not self.shared_before:
            if (rival := self._promising(seconds)) is not None:
                reason = f"{rival} may do as well as {self.said}: it is tried once"
                return Choice(everything(rival, names), None, reason)
            if (tried := self._tried(alone[single])) is not None:
                return tried
        new = single in known and seen.latest_like(split) is None
        if seconds >= (settings.unseen_cut if new else settings.new_cut) * alone[single]:
            split, seconds = everything(single, names), alone[single]
        best = seen.best_seen()
        if best is not None and best[1] * settings.new_cut < seconds:
            split, seconds = Split({name: best[0].shares.get(name, 0.0) for name in names}), best[1]
        if self.shared_before and (rival := self._rival_of_shared(alone, seconds)) is not None:
            return Choice(everything(rival, names), None, f"{rival} alone may do as well: it is tried once")
        # What is known is quicker to launch again.
        if (launch := seen.latest_like(split)) is not None:
            split = Split({name: launch.shares.get(name, 0.0) for name in split.shares})
        return Choice(split, seconds, f"earlier launches predict {seconds * 1e3:.3g} ms")

    def _rival_of_shared(self, alone: Mapping[str, float], seconds: float) -> str | None:
        """The device to try alone after sharing: what a device took beside others says too much of it,
        because alone it has the memory to itself."""
        settings, known, seen = self.settings, self.known, self.seen
        # Where one alone was far slower, the first launch did not choose the right one.
        wrong = bool(known) and min(known.values()) > settings.wrong * seconds
        first = predicted(self.forecast, tuple(self.names), self.prediction)
        misled = seen.noted == 1 and surprising(first, seen.launches[0].seconds, settings)
        soon = settings.explore if misled else settings.explore_later
        hope = (
            self.forecast.spread if seen.noted >= settings.later else settings.explore_far if wrong else soon
        )
        close = [name for name in self.names if name not in known and alone[name] < hope * seconds]
        return min(close, key=lambda name: alone[name], default=None)

    def _tried(self, seconds: float) -> Choice | None:
        """What is launched to see what it takes, as long as nothing was shared; None where nothing is.

        Args:
            seconds: what the best device alone takes, as far as is known.
        """
        settings, seen, forecast = self.settings, self.seen, self.forecast
        dares = _dares(seen, forecast, settings)
        hoped = best_shared(self._hopeful(forecast.spread if dares else 1.0), self.sharing, self.groups)
        second_or_late = len(seen.launches) == 1 or seen.noted >= settings.later
        enough = settings.new_cut if second_or_late else settings.later_share
        if hoped is not None and hoped[1] < enough * seconds:
            # Against what is expected, with a part for which it will do if the others are slow: a wrong hope
            # must not cost much, and a small part shows what they take.
            feared = self._hopeful(forecast.spread**-0.5) if dares else self.models
            split, _ = best_shared(feared, self.sharing, self.groups) or hoped
            return Choice(
                split, None, f"sharing may beat {self.said} alone, which is known: it is tried once"
            )
        if not dares or len(self.known) != 1 or 1 < seen.noted < settings.later:
            return None
        if (probe := self._probe()) is not None:
            return Choice(
                probe, None, f"a small part shows what others take, since {self.said} alone is known"
            )
        if (rival := self._rival()) is not None:
            split = everything(rival, self.names)
            return Choice(split, None, f"{rival} alone may beat {self.said}: it is tried once")
        return None

    def _promising(self, shared: float) -> str | None:
        """The device to try after a first launch by another one: it is expected to take not much longer than
        that and than sharing, or the first took far longer than predicted, and what was said of the others
        may hold all the same.

        Args:
            shared: seconds that sharing is expected to take.
        """
        settings, forecast = self.settings, self.forecast
        if len(self.known) != 1 or len(self.seen.launches) != 1:
            return None
        ((single, seconds),) = self.known.items()
        limits: list[tuple[Mapping[str, CostModel], float]] = []
        if forecast.doubt is not None and seconds > settings.short:
            limits.append((self.models, settings.explore * min(seconds, shared)))
        if seconds >= settings.misjudged * forecast.models[single].seconds(1.0):
            limits.append((forecast.models, settings.explore_later * seconds))
        for expected, limit in limits:
            others = {name: expected[name].seconds(1.0) for name in self.models if name != single}
            rival = min(others, key=lambda name: others[name], default=None)
            if rival is not None and others[rival] < limit:
                return rival
        return None

    def _probe(self) -> Split | None:
        """One device that was seen does nearly everything, the others as little as shows their speed: a
        forecast that is wrong about them by more than it thinks must not keep them from ever being tried.

        None where even that would take longer than the one device alone.
        """
        settings, models = self.settings, self.models
        ((single, seconds),) = self.known.items()
        least = {
            name: max(settings.probe_share * min(1.0, seconds / models[name].seconds(1.0)), 1 / self.groups)
            for name in self.names
            if name != single
        }
        most = settings.probe_limit * seconds
        costly = any(models[name].seconds(share) > most for name, share in least.items())
        if costly or self.sharing > settings.probe_share * seconds or sum(least.values()) > 0.5:
            return None
        return Split({name: least.get(name, 1 - sum(least.values())) for name in self.names})

    def _rival(self) -> str | None:
        """The device that may well do everything faster than the known one, where sharing would not show
        it."""
        spread = self.forecast.spread**0.5
        fastest = {
            name: model.seconds(1.0) / spread for name, model in self.models.items() if name not in self.known
        }
        rival = min(fastest, key=lambda name: fastest[name], default=None)
        return rival if rival is not None and fastest[rival] < min(self.known.values(), default=0.0) else None

    def _hopeful(self, spread: float) -> dict[str, CostModel]:
        """Models in which devices that were never measured are faster by as much as they may well be."""
        return {
            name: model if name in self.known else CostModel(model.fixed / spread, model.rate / spread)
            for name, model in self.models.items()
        }


def _dares(seen: Observations, forecast: Forecast, settings: FeedbackSettings) -> bool:
    """Whether it is time to try what is not expected to win: calibrated speeds are so often wrong that what
    they speak against is tried at once."""
    return seen.noted >= settings.later or forecast.doubt is None


def _models(
    seen: Observations, names: Sequence[str], forecast: Forecast, settings: FeedbackSettings
) -> dict[str, CostModel]:
    """What each device takes; those never seen by the forecast, wrong in part as it is about the others."""
    found = {
        name: seen.model(name, forecast) for name in names if any(name in s.shares for s in seen.launches)
    }
    models = {name: model for name, model in found.items() if model is not None}
    scale = median_of(
        model.seconds(1.0) / forecast.models[name].seconds(1.0) for name, model in models.items()
    )
    for name in names:
        if name not in models:
            model, off = forecast.models[name], scale**settings.alike
            models[name] = CostModel(model.fixed * off, model.rate * off)
    return {name: models[name] for name in names}
