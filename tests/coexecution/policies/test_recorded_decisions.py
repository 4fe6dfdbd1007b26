"""The feedback policy decides as it did when its decisions were recorded, launch by launch, over measured curves.

The curves are those of docs/results/co-execution (a Xeon with an H200); forecasts are the measured times, wrong by
a factor that a seed draws. The recording was made before the policy became a file of its own.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from apportion.coexecution.cuts import CostModel
from apportion.coexecution.forecast import Forecast
from apportion.coexecution.observations import Choice, Observations, PastLaunch
from apportion.coexecution.policies.base import Situation
from apportion.coexecution.policies.feedback import FeedbackPolicy
from apportion.runtime.base import DeviceInfo

RECORDED = Path(__file__).parents[1] / "data" / "decisions.json.xz"
FOLDER = Path(__file__).parents[3] / "docs" / "results" / "co-execution"
LAUNCHES = 14
GROUPS = 4096
Decide = Callable[[Observations], Choice]


def _device(name: str) -> DeviceInfo:
    return DeviceInfo(
        name, name, "gpu" if name == "gpu" else "cpu", "v", "p", "d", "1", 8, 1 << 30, 1 << 15, 1024
    )


def _truths(random: np.random.Generator) -> Iterator[tuple[str, dict[str, CostModel], float, str]]:
    """Name, what devices really take, what sharing takes on top, and why it cannot be shared."""
    for size in ("large", "usual"):
        for line in (FOLDER / size / "efficiency.jsonl").read_text().splitlines():
            row = json.loads(line)
            if not row["alone"] or len(row["alone"]) != 2:
                continue
            models = {}
            for name, measured in row["alone"].items():
                seconds, part = 1e-3 * measured["median"], random.uniform(0.02, 0.5)
                models[name] = CostModel(part * seconds, (1 - part) * seconds)
            yield f"{size} {row['kernel']}", models, random.uniform(0, 4e-4), row["obstacle"]
    for number in range(24):
        models = {
            name: CostModel(random.uniform(0, 2e-3), float(np.exp(random.normal(-5.5, 1.0))))
            for name in ("cpu", "cpu2", "gpu")
        }
        yield f"three {number}", models, random.uniform(0, 1e-3), "" if number % 6 else "a test"


def _forecast(truth: dict[str, CostModel], random: np.random.Generator, *, doubt: bool) -> Forecast:
    models = {
        name: CostModel(
            model.fixed * np.exp(random.normal(0, 0.8)), model.rate * np.exp(random.normal(0, 0.6))
        )
        for name, model in truth.items()
    }
    spread = float(random.choice([1.3, 2.0, 5.0]))
    return Forecast(models, spread, "a test", 4e-4, float(random.uniform(0.1, 0.8)) if doubt else None)


def _play(
    decide: Decide, truth: dict[str, CostModel], beyond: float, random: np.random.Generator
) -> list[list[Any]]:
    """What is decided launch after launch: shares, expected milliseconds, the reason's last words."""
    seen, before, found = Observations(), None, []
    for _ in range(LAUNCHES):
        choice = seen.decided or decide(seen)
        parts = {part.device: part.groups / GROUPS for part in choice.split.parts(GROUPS)}
        factor = float(np.exp(random.normal(0, 0.05))) * (1.1 if before not in (None, parts.keys()) else 1.0)
        before = parts.keys()
        devices = {name: factor * truth[name].seconds(share) for name, share in parts.items()}
        if len(parts) > 1 and random.random() < 0.15:
            last = list(parts)[-1]
            devices[last] *= 1.6
        seconds = max(devices.values()) + (beyond if len(parts) > 1 else 0.0)
        expected = None if choice.seconds is None else round(1e3 * choice.seconds, 5)
        found.append(
            [[round(share, 5) for share in choice.split.shares.values()], expected, choice.reason[-24:]]
        )
        seen.add(PastLaunch(parts, seconds, devices))
        if seen.noted > 1 and FeedbackPolicy().stands(seen, choice, seconds):
            seen.decided = choice
    return found


def sequences() -> dict[str, list[list[Any]]]:
    """Every instance, played twice: with a forecast from speeds, and with a model's."""
    random = np.random.default_rng(20)
    policy, found = FeedbackPolicy(), {}
    for name, truth, beyond, obstacle in list(_truths(random)):
        devices = tuple(map(_device, truth))
        for doubt in (False, True):
            forecast = _forecast(truth, random, doubt=doubt)
            situation = Situation(devices, GROUPS, lambda forecast=forecast: forecast, obstacle)

            def decide(seen: Observations, situation: Situation = situation) -> Choice:
                return policy.choose(situation, seen)

            found[f"{name} {doubt}"] = _play(decide, truth, beyond, random)
    return found


def test_the_feedback_policy_decides_as_it_did_when_its_decisions_were_recorded() -> None:
    recorded = json.loads(lzma.decompress(RECORDED.read_bytes()))
    found = json.loads(json.dumps(sequences()))
    assert found.keys() == recorded.keys()
    for name, decisions in recorded.items():
        assert found[name] == decisions, name
    tried = {decision[2] for decisions in recorded.values() for decision in decisions}
    assert len(tried) > 10, "the recording has few kinds of decisions"
