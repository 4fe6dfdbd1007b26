"""Policies: who gets how much of a launch. Each is one file; packages add theirs as `apportion.policy` entry
points."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from apportion.coexecution.policies.base import Policy
from apportion.coexecution.policies.given import DevicePolicy, SharePolicy
from apportion.errors import InvalidSetting, UnknownName
from apportion.registry import Registry
from apportion.runtime.base import DeviceInfo

_HERE = "apportion.coexecution.policies"
policies = Registry(
    "policy",
    {
        "learned": f"{_HERE}.learned:LearnedPolicy",
        "learned+feedback": f"{_HERE}.feedback:FeedbackPolicy",
        "bayes": f"{_HERE}.bayes:BayesPolicy",
        "dynamic": f"{_HERE}.dynamic:DynamicPolicy",
        "static": f"{_HERE}.static:StaticPolicy",
        "even": f"{_HERE}.even:EvenPolicy",
        "oracle": f"{_HERE}.oracle:OraclePolicy",
    },
)
"""Policies by name. Besides these, the id of a device gives it everything, and a number is the share of the
first device."""


def policy_of(policy: str | float | Policy, devices: Sequence[DeviceInfo]) -> Policy:
    """The policy that a name, a device's id or a share stands for.

    Raises:
        InvalidSetting: a share that is not one, or an entry point that is no policy.
        UnknownName: no such policy and no such device.
    """
    if isinstance(policy, Policy):
        return policy
    names = [device.id for device in devices]
    if policy in names:
        return DevicePolicy(str(policy))
    if isinstance(policy, str):
        with suppress(ValueError):
            policy = float(policy)
    if isinstance(policy, int | float):
        return SharePolicy(float(policy))
    if policy not in policies:
        raise UnknownName("policy", policy, [*policies, *names, "a share from 0 to 1"])
    made = policies.load(policy)()
    if not isinstance(made, Policy):
        raise InvalidSetting(
            f"The policy {policy!r} is {made!r}; make it a subclass of Policy, or a function giving one"
        )
    return made
