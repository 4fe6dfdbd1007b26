"""The policy `static`: shares by the devices' speeds, the same for every kernel."""

from __future__ import annotations

from apportion.coexecution.cuts import best_split, prior
from apportion.coexecution.observations import Choice, Observations
from apportion.coexecution.policies.base import Policy, Situation


class StaticPolicy(Policy):
    """Shares in proportion to calibrated speeds, or to compute units where a device was never calibrated."""

    def choose(self, situation: Situation, seen: Observations) -> Choice:
        """The same split whatever happened."""
        split, _ = best_split(prior(situation.devices))
        return Choice(split, None, "the policy static was asked for")
