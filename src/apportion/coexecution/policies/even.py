"""The policy `even`: the same share to each device."""

from __future__ import annotations

from apportion.coexecution.observations import Choice, Observations
from apportion.coexecution.policies.base import Policy, Situation
from apportion.runtime.split import Split


class EvenPolicy(Policy):
    """The same share to each device: the baseline that knows nothing."""

    def choose(self, situation: Situation, seen: Observations) -> Choice:
        """The same split whatever happened."""
        return Choice(Split.even(situation.names), None, "the policy even was asked for")
