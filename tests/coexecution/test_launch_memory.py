"""A later process begins with what an earlier one learned of a launch; here two kernels after one another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from apportion.coexecution import launch_memory
from apportion.coexecution.cuts import CostModel
from apportion.coexecution.expected_times import Belief
from apportion.coexecution.forecast import Forecast, LaunchQuery
from apportion.coexecution.launch_memory import LaunchMemory, identity_of
from apportion.coexecution.launching import LaunchState
from apportion.coexecution.observations import PastLaunch
from apportion.coexecution.session import Session, SessionSettings
from apportion.coexecution.sharing import Together
from apportion.runtime.base import DeviceInfo
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.plan import LaunchOutcome, Plan

pytest.importorskip("ziglang")

SOURCE = """
kernel void scale(global float *x, float a) { x[get_global_id(0)] *= a; }
kernel void last_wins(global int *out) { out[get_global_id(0) % 16] = get_global_id(0) / 64; }
"""
N = 640
ASKED: list[str] = []


def _predictor(query: LaunchQuery, devices: Sequence[DeviceInfo]) -> Forecast:
    ASKED.append(query.kernel)
    return Forecast({info.id: CostModel(1e-4, 1e-3) for info in devices}, 1.5, "a test")


@pytest.fixture
def memory(tmp_path: Path) -> LaunchMemory:
    return LaunchMemory(tmp_path / "launches")


@pytest.fixture
def plans(backend: OpenCLBackend, monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that are launched from now on."""
    found: list[Plan] = []
    launch = backend.launch

    def noting(plan: Plan) -> LaunchOutcome:
        found.append(plan)
        return launch(plan)

    monkeypatch.setattr(backend, "launch", noting)
    return found


def _scale(
    backend: OpenCLBackend, memory: LaunchMemory | None, times: int, items: int = N, **options: bool
) -> tuple[str, bool]:
    """The reason of the first launch, and whether it counts as verified."""
    x = np.ones(items, np.float32)
    with Together(
        SOURCE, "scale", ["cpu", "cpu2"], backend=backend, predictor=_predictor, memory=memory, **options
    ) as kernel:
        executions = [kernel(x, 2.0, global_size=items, local_size=64) for _ in range(times)]
    assert x.tolist() == [2.0**times] * items
    return executions[0].reason, executions[0].verified


def test_the_next_process_begins_where_this_one_ended(
    backend: OpenCLBackend, memory: LaunchMemory, plans: list[Plan]
) -> None:
    ASKED.clear()
    first, _ = _scale(backend, memory, 6)
    assert first.startswith("predicted from a test")
    assert ASKED == ["scale"]
    plans.clear()
    again, verified = _scale(backend, memory, 1)
    assert "predict" in again
    assert not again.startswith("predicted from")
    assert verified
    assert ASKED == ["scale"]  # the forecast was kept, too
    assert not any(plan.checked for plan in plans)
    assert len(plans) == 1  # nothing was compared anew


def test_fresh_begins_anew_and_forgets(backend: OpenCLBackend, memory: LaunchMemory) -> None:
    _scale(backend, memory, 6)
    reason, _ = _scale(backend, memory, 1, fresh=True)
    assert reason.startswith("predicted from a test")
    (file,) = memory.folder.iterdir()
    assert json.loads(file.read_text())["noted"] == 1


def test_another_size_is_another_launch_and_without_a_memory_nothing_is_kept(
    backend: OpenCLBackend, memory: LaunchMemory
) -> None:
    _scale(backend, memory, 4)
    assert _scale(backend, memory, 1, items=2 * N)[0].startswith("predicted from a test")
    assert len(list(memory.folder.iterdir())) == 2
    assert _scale(backend, None, 1)[0].startswith("predicted from a test")


def test_why_a_kernel_cannot_be_shared_is_remembered(
    backend: OpenCLBackend, memory: LaunchMemory, plans: list[Plan]
) -> None:
    out = np.full(16, -1, np.int32)
    reasons = []
    for _ in range(2):
        plans.clear()
        with Together(
            SOURCE, "last_wins", ["cpu", "cpu2"], backend=backend, policy="even", memory=memory
        ) as kernel:
            reasons.append(kernel(out, global_size=N, local_size=64).reason)
    assert all("16 conflicts between the devices' writes" in reason for reason in reasons)
    assert plans
    assert all(len(plan.parts) == 1 for plan in plans)  # sharing was not tried again


@pytest.mark.parametrize(
    "damage", [b"", b"[1]", b"{}", b'{"launches": 3}', b"\xff\xfe", b'{"launches": [{"shares": 1}]}']
)
def test_a_damaged_memory_is_none(tmp_path: Path, damage: bytes) -> None:
    memory, state = LaunchMemory(tmp_path), LaunchState(0, {"x": "slice"})
    state.seen.add(PastLaunch({"cpu": 1.0}, 1.0, {"cpu": 1.0}))
    memory.keep(("launch",), state)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for data in (damage, whole[: len(whole) // 2], whole.replace(b'"seconds": 1.0', b'"seconds": "x"')):
        file.write_bytes(data)
        found = LaunchState(0, {"x": "slice"})
        memory.recall(("launch",), found)
        assert found == LaunchState(0, {"x": "slice"})
    file.write_bytes(whole)
    memory.recall(("launch",), found)
    assert found == state


def test_the_oldest_of_many_launches_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_memory, "_MOST_FILES", 20)
    memory, state = LaunchMemory(tmp_path), LaunchState(0, {})
    state.seen.add(PastLaunch({"cpu": 1.0}, 1.0, {"cpu": 1.0}))
    for number in range(30):
        memory.keep((number,), state)
    memory.prune()
    assert len(list(tmp_path.iterdir())) == 18


def test_what_a_session_believes_of_times_is_kept_and_a_doubt_remains(tmp_path: Path) -> None:
    memory, belief = LaunchMemory(tmp_path), Belief({"cpu": 1.0, "gpu": 2.0}, 5.0)
    memory.keep_times(("a",), belief, [])
    assert not list(tmp_path.iterdir())
    belief.observe("cpu", 0.25)
    memory.keep_times(("a",), belief, ["cpu"])
    found = Belief({"cpu": 1.0, "gpu": 2.0}, 5.0)
    assert memory.recall_times(("a",), found) == ["cpu"]
    assert found.seconds("cpu") == pytest.approx(belief.seconds("cpu"))
    assert belief.deviation("cpu") < found.deviation("cpu") < 2 * belief.deviation("cpu")
    others = Belief({"cpu": 1.0, "cpu2": 2.0}, 5.0)
    assert memory.recall_times(("a",), others) == []
    assert others.seconds("cpu") == pytest.approx(1.0)


def test_a_session_goes_at_once_where_an_earlier_one_found_a_kernel_to_be_fast(
    backend: OpenCLBackend, memory: LaunchMemory
) -> None:
    def slow_on(name: str) -> Session:
        def predictor(query: LaunchQuery, devices: Sequence[DeviceInfo]) -> Forecast:
            return Forecast(
                {info.id: CostModel(0.0, 5.0 if info.id == name else 1e-4) for info in devices}, 1.2, "a test"
            )

        return Session(
            ["cpu", "cpu2"], backend=backend, predictor=predictor, memory=memory,
            settings=SessionSettings(explore=False),
        )  # fmt: skip

    places = []
    # The second one is told the opposite, and knows better.
    for name in ("cpu", "cpu2"):
        with slow_on(name) as session:
            scale = session.kernel(SOURCE, "scale")
            x = session.array(np.ones(N, np.float32))
            for _ in range(20):
                scale(x, 1.0, global_size=N)
            places.append(session.explain()[0].device)
    assert places == ["cpu2", "cpu2"]


def test_a_driver_of_another_version_is_another_device(backend: OpenCLBackend) -> None:
    info = backend.devices()[0]
    assert identity_of([info]) == identity_of([replace(info, calibration=None)])
    assert identity_of([info]) != identity_of([replace(info, driver="99")])
