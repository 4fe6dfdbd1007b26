"""Shares of jobs where no system is known to be faster than another: the centre of all optima, without a
solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from apportion.schedule.trace import Floats, Integers

LARGEST = 1e18
"Of a number that is sought by doubling: beyond it, any fits."
STEPS = 100
"Of Newton's method; it ends after about ten."
ENOUGH = 1e-18
"Decrease that Newton's method expects of a step, below which the point is taken for the centre."


def equal_systems(
    part: Callable[[float], Floats], width: Integers, slots: Integers, *, falling: bool
) -> Floats:  # (n, S)
    """Shares where no system is known to be faster than another, with nothing left over.

    Each job's part of time depends on one number: a makespan, a lateness, a level of fairness. The best
    number is found whose parts fit into the slots; jobs that have all their time already leave the rest to
    others.

    Args:
        part: the parts (n,) for a number from 0 to infinity, at most 1.
        falling: whether parts fall as the number grows.
    """
    capacity = float(slots.sum())

    def fits(number: float) -> bool:
        return float(width @ part(number)) <= capacity

    low, high = 0.0, 1.0
    while fits(high) != falling and high < LARGEST:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if fits(middle) == falling else (middle, high)
    return central_shares(part(high if falling else low), width, slots)


def central_shares(part: Floats, width: Integers, slots: Integers) -> Floats:  # (n, S)
    """Each job's part of time, spread over the systems.

    Any spread that fits is an optimum where systems are alike. This is their analytic centre: it maximises
    the sum of the logarithms of all shares and of what is left of each system. It is unique, and what an
    interior-point solver (Gavel's) comes near to.
    """
    rows, kinds = np.unique(np.stack([part, width.astype(float)], axis=1), axis=0, return_inverse=True)
    kinds = kinds.ravel()
    there = rows[:, 0] > 0
    share = np.zeros((len(rows), len(slots)))
    if there.any():
        count = np.bincount(kinds, minlength=len(rows))[there].astype(float)
        share[there] = _Spread(rows[there, 0], rows[there, 1], count, slots.astype(float)).centre()
    return share[kinds]


@dataclass(frozen=True, eq=False)
class _Spread:
    """K kinds of jobs over S systems: at the centre, a share is 1 / (u + width · price of the system)."""

    part: Floats  # (K,): > 0
    width: Floats  # (K,)
    count: Floats  # (K,): jobs of the kind
    slots: Floats  # (S,)

    def centre(self) -> Floats:  # (K, S)
        """Newton's method on the prices, which are the variables of the dual program."""
        used = float((self.count * self.width * self.part).sum() / self.slots.sum())
        full = used >= 1 - 1e-9
        price = np.zeros(len(self.slots)) if full else 1 / (self.slots * (1 - used))
        share = self._shares(price)
        value = self._dual(price, share, full)
        for _ in range(STEPS):
            step, decrease = self._step(price, share, full)
            if decrease < ENOUGH:
                break
            length, found = 1.0, None
            while found is None and length > ENOUGH:
                tried = price + length * step
                if full or (tried > 0).all():
                    there = self._shares(tried)
                    reached = self._dual(tried, there, full)
                    if reached <= value - 1e-4 * length * decrease:
                        found = tried, there, reached
                length /= 2
            if found is None:  # no better point can be told from this one
                break
            price, share, value = found
        return share

    def _shares(self, price: Floats) -> Floats:  # (K, S)
        """For each kind, the u with which its shares sum to its part. Newton's method starts below it and
        never passes it."""
        cost = self.width[:, None] * price
        u = 1 / self.part - cost.min(axis=1)
        for _ in range(STEPS):
            share = 1 / (u[:, None] + cost)
            step = (share.sum(axis=1) - self.part) / (share**2).sum(axis=1)
            u = u + step
            if (np.abs(step) <= 1e-14 * np.abs(u)).all():
                break
        return np.asarray(1 / (u[:, None] + cost))

    def _dual(self, price: Floats, share: Floats, full: bool) -> float:
        inside = np.log(share).sum(axis=1) - self.width * (share @ price)
        value = float((self.count * inside).sum() + price @ self.slots)
        return value if full else value - float(np.log(price).sum())

    def _step(self, price: Floats, share: Floats, full: bool) -> tuple[Floats, float]:
        slope = self.slots - (self.count * self.width) @ share
        square, weight = share**2, self.count * self.width**2
        curve = np.diag(weight @ square) - (square.T * (weight / square.sum(axis=1))) @ square
        step = np.zeros(len(price))
        if full:  # only differences of prices matter: the first stays 0
            step[1:] = -np.linalg.solve(curve[1:, 1:], slope[1:])
        else:
            slope = slope - 1 / price
            step = -np.linalg.solve(curve + np.diag(1 / price**2), slope)
        return step, float(-(slope @ step))
