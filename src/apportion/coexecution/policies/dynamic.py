"""The policy `dynamic`: chunks, handed out while the devices work."""

from __future__ import annotations

from dataclasses import dataclass, replace

from apportion.coexecution.observations import Choice, Observations
from apportion.coexecution.policies.base import Situation
from apportion.coexecution.policies.feedback import FeedbackPolicy
from apportion.errors import InvalidSetting
from apportion.runtime.plan import Chunks


@dataclass(frozen=True)
class ChunkSettings:
    """How work is handed out in chunks."""

    at_once: float = 0.75
    """The part of its share that a device gets at once when earlier launches are known. Chosen: sure enough
    to save chunks, and a quarter is left to correct with."""
    least_share: float = 0.02
    "A device's share is taken to be at least this, so that every device gets a first chunk. Chosen."
    chunks: int = 256
    "A chunk has at least one part in so many of the range. Chosen: a chunk costs a launch of some 10 µs."

    def __post_init__(self) -> None:
        if not (0 < self.at_once <= 1 and 0 < self.least_share <= 0.5 and self.chunks >= 1):
            raise InvalidSetting(f"Chunks need shares between 0 and 1 and a positive count, not {self}")


CHUNKS = ChunkSettings()


class DynamicPolicy(FeedbackPolicy):
    """The feedback policy's split to begin with, and the rest in smaller chunks to whoever is free."""

    def __init__(self, chunks: ChunkSettings = CHUNKS) -> None:
        super().__init__()
        self.chunks = chunks

    def choose(self, situation: Situation, seen: Observations) -> Choice:
        """As the feedback policy, in chunks where the work can be shared."""
        choice = super().choose(situation, seen)
        if len(situation.devices) < 2 or situation.obstacle:
            return choice
        shares = {name: max(share, self.chunks.least_share) for name, share in choice.split.shares.items()}
        sure = self.chunks.at_once
        first = sure if seen.launches else min(sure, 1 / situation.forecast.spread)
        chunks = Chunks(shares, first, max(1, situation.groups // self.chunks.chunks))
        return replace(
            choice, chunks=chunks, reason=f"{choice.reason}; {first:.0%} at once, the rest in chunks"
        )
