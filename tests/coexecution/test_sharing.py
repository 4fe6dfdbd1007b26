"""Kernels shared for real between independent PoCL devices; the third copies arrays as a discrete device does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import apportion
from apportion.advise.learned_policy import learned
from apportion.coexecution.checking import _without
from apportion.coexecution.cuts import CostModel
from apportion.coexecution.forecast import Forecast, LaunchQuery
from apportion.coexecution.observations import Choice, Observations
from apportion.coexecution.policies.base import Situation
from apportion.coexecution.policies.feedback import FeedbackPolicy
from apportion.coexecution.sharing import Together
from apportion.errors import InvalidSetting, NotSplittable, UnknownName, VerificationFailed
from apportion.program.buildfile import BuildOptions
from apportion.runtime.base import DeviceInfo, LocalMemory
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.split import Split

pytest.importorskip("ziglang")

SOURCE = """
kernel void saxpy(global const float *x, global float *y, float a, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = a * x[i] + y[i];
}
kernel void queue(global const int *data, global int *out, global int *next) {
    if (data[get_global_id(0)] & 1) out[atomic_inc(next)] = data[get_global_id(0)];
}
kernel void groups(global int *out, local int *kept) {
    kept[get_local_id(0)] = get_global_size(0) + get_num_groups(0) + get_global_linear_id();
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) out[get_group_id(0)] = kept[get_local_size(0) - 1];
}
kernel void last_wins(global int *out) { out[get_global_id(0) % 16] = get_global_id(0) / 64; }
kernel void plane(global int *out, int width) {
    out[get_global_id(1) * width + get_global_id(0)] = get_global_id(1) * 1000 + get_global_id(0);
}
"""
N = 640
HEAVY = """
kernel void turns(global float *y) {
    float v = 1;
    for (int k = 0; k < 20000; k++) v = v * 0.5f + 0.25f;
    y[get_global_id(0)] = v;
}
"""
"A launch of it takes longer than 0.1 ms."


@pytest.fixture(params=[["cpu", "cpu2"], ["cpu", "cpu3"], ["cpu", "cpu2", "cpu3"]], ids="+".join)
def devices(request: pytest.FixtureRequest) -> list[str]:
    return request.param  # type: ignore[no-any-return]


def test_the_result_of_sharing_is_that_of_one_device(devices: list[str], backend: OpenCLBackend) -> None:
    x, y = np.arange(N, dtype=np.float32), np.ones(N, np.float32)
    with Together(SOURCE, "saxpy", devices, backend=backend, policy="even") as kernel:
        execution = kernel(x, y, 2.0, 600, global_size=N)
        assert execution.verified
        assert execution.conflicts == 0
        assert execution.merge == {"y": "slice"}
        assert min(execution.split.values()) > 0
        assert y[:600].tolist() == (2 * x + 1)[:600].tolist()
        assert y[600:].tolist() == [1.0] * 40
        again = kernel(x, y, 2.0, 600, global_size=N)  # what it trusts now works without copies, and in place
        assert y[:600].tolist() == (4 * x + 1)[:600].tolist()
        assert again.verified


def test_a_kernel_sees_the_whole_range_whatever_its_part(devices: list[str], backend: OpenCLBackend) -> None:
    out = np.zeros(10, np.int32)
    with Together(SOURCE, "groups", devices, backend=backend, policy="even") as kernel:
        kernel(out, LocalMemory(4 * 64), global_size=N, local_size=64)
    assert out.tolist() == [N + 10 + 64 * group + 63 for group in range(10)]


def test_two_dimensions_are_cut_along_rows(backend: OpenCLBackend) -> None:
    out = np.zeros((32, 64), np.int32)
    with Together(SOURCE, "plane", ["cpu", "cpu3"], backend=backend, policy=0.25) as kernel:
        bound = kernel.bind(out, 64, global_size=(64, 32), local_size=(16, 4))
        assert bound.case.dimension == 1
        execution = kernel(out, 64, global_size=(64, 32), local_size=(16, 4))
    assert execution.split == {"cpu": 0.25, "cpu3": 0.75}
    assert out.tolist() == [[1000 * y + x for x in range(64)] for y in range(32)]


def test_chunks_give_the_same_result(backend: OpenCLBackend) -> None:
    x, y = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    with Together(SOURCE, "saxpy", ["cpu", "cpu3"], backend=backend, policy="dynamic") as kernel:
        execution = kernel(x, y, 3.0, N, global_size=N)
    assert y.tolist() == (3 * x).tolist()
    assert sum(execution.split.values()) == pytest.approx(1)
    assert execution.reason.endswith("the rest in chunks")


def test_atomics_whose_results_are_used_forbid_splitting(backend: OpenCLBackend) -> None:
    data, out, count = np.arange(N, dtype=np.int32), np.zeros(N, np.int32), np.zeros(1, np.int32)
    with Together(SOURCE, "queue", ["cpu", "cpu2"], backend=backend) as kernel:
        execution = kernel(data, out, count, global_size=N)
        assert sorted(execution.split.values()) == [0.0, 1.0]
        assert "the result of atomic inc is used" in execution.reason
        assert execution.verified
        assert count[0] == N // 2
        assert sorted(out[: N // 2].tolist()) == list(range(1, N, 2))
        with pytest.raises(
            NotSplittable, match=r"'queue' cannot be shared between devices: .*Run it on one of cpu, cpu2"
        ):
            kernel(data, out, count, global_size=N, policy=0.5)


def test_conflicting_writes_are_counted_and_one_device_takes_over(backend: OpenCLBackend) -> None:
    out = np.full(16, -1, np.int32)
    with Together(SOURCE, "last_wins", ["cpu", "cpu2"], backend=backend, policy="even") as kernel:
        execution = kernel(out, global_size=N)
    assert execution.conflicts == 16
    assert sorted(execution.split.values()) == [0.0, 1.0]
    assert "16 conflicts between the devices' writes" in execution.reason


def test_feedback_settles_on_rates_it_has_seen(backend: OpenCLBackend) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    with Together(SOURCE, "saxpy", ["cpu", "cpu2"], backend=backend) as kernel:
        reasons = [kernel(x, y, 1.0, N, global_size=N).reason for _ in range(5)]
    assert reasons[0].startswith("predicted from calibrated speeds and what the kernel is made of")
    assert reasons[-1].startswith("earlier launches predict")
    assert y.tolist() == [5.0] * N


def test_a_settled_launch_is_not_chosen_anew_until_something_else_was_seen(backend: OpenCLBackend) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    with Together(SOURCE, "saxpy", ["cpu", "cpu2"], backend=backend) as kernel:
        case = kernel.bind(x, y, 1.0, N, global_size=N).case
        for _ in range(2):
            kernel(x, y, 1.0, N, global_size=N)
        decided = case.seen.decided
        assert decided is not None
        assert kernel(x, y, 1.0, N, global_size=N).reason == decided.reason
        kernel(x, y, 1.0, N, global_size=N, policy="cpu")
        assert case.seen.decided is None


def test_nothing_is_chosen_or_checked_in_a_steady_loop_and_results_count_on(backend: OpenCLBackend) -> None:
    class Counted(FeedbackPolicy):
        asked = 0

        def choose(self, situation: Situation, seen: Observations) -> Choice:
            type(self).asked += 1
            return replace(super().choose(situation, seen), seconds=1.0)

        def stands(self, seen: Observations, choice: Choice, seconds: float) -> bool:
            type(self).asked += 1
            return True

    policy = Counted()
    with Together(SOURCE, "saxpy", ["cpu", "cpu2"], backend=backend, policy=policy) as kernel:
        x, y = kernel.array(N, np.float32), kernel.array(N, np.float32)
        x[:] = 1
        bound = kernel.bind(x, y, 1.0, N, global_size=N)
        for _ in range(20):
            bound.run(policy)
        before, noted = Counted.asked, bound.case.seen.noted
        executions = [bound.run(policy) for _ in range(80)]
        assert Counted.asked - before == bound.case.seen.noted - noted == 10
        assert y.tolist() == [100.0] * N
        assert all(execution.verified and execution.seconds > 0 for execution in executions)
        assert len({execution.seconds for execution in executions}) > 1
        bound.run("cpu")  # another policy
        assert bound.run(policy).outcome.devices


def test_a_steady_loop_that_takes_longer_than_expected_is_thought_about(backend: OpenCLBackend) -> None:
    class Hopeful(FeedbackPolicy):
        late = 0

        def choose(self, situation: Situation, seen: Observations) -> Choice:
            return Choice(Split.alone("cpu"), 1e-9, "a hope")

        def stands(self, seen: Observations, choice: Choice, seconds: float) -> bool:
            self.late += 1
            return True

    policy = Hopeful()
    with Together(HEAVY, "turns", ["cpu", "cpu2"], backend=backend, policy=policy, trust=True) as kernel:
        bound = kernel.bind(kernel.array(64, np.float32), global_size=64)
        for _ in range(30):
            bound.run(policy)
    assert policy.late > 20  # of all but the first ones; one in eight would be 16


def test_a_predictor_is_asked_once_and_knows_the_launch(backend: OpenCLBackend) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    asked: list[LaunchQuery] = []

    def predictor(query: LaunchQuery, devices: Sequence[DeviceInfo]) -> Forecast:
        asked.append(query)
        return Forecast({"cpu": CostModel(0.1, 1.0), "cpu2": CostModel(0.0, 1.0)}, 1.5, "a test")

    with Together(
        SOURCE, "saxpy", ["cpu", "cpu2"], backend=backend, predictor=predictor, policy="learned"
    ) as kernel:
        for _ in range(2):
            execution = kernel(x, y, 1.0, N, global_size=N, local_size=16)
    assert execution.split == {"cpu": 0.45, "cpu2": 0.55}
    assert execution.reason == "predicted from a test, give or take a factor of 1.5"
    (query,) = asked
    assert (query.kernel, query.work_items, query.local_size) == ("saxpy", N, 16)
    assert query.transfers(1.0) == (8 * N, 4 * N)  # x and y there, y back
    assert query.transfers(0.5) == (4 * N, 2 * N)


def test_the_first_chunks_are_the_larger_the_surer_the_forecast_is(backend: OpenCLBackend) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    costs = {"cpu": CostModel(0.0, 1.0), "cpu2": CostModel(0.0, 1.0)}
    for spread, said in ((1.1, "75% at once"), (5.0, "20% at once")):
        with Together(
            SOURCE, "saxpy", ["cpu", "cpu2"], backend=backend, policy="dynamic", trust=True,
            predictor=lambda query, devices, spread=spread: Forecast(costs, spread, "a test"),
        ) as kernel:  # fmt: skip
            assert said in kernel(x, y, 1.0, N, global_size=N).reason


def test_sharing_is_verified_also_when_a_device_alone_was_before(backend: OpenCLBackend) -> None:
    """`out` looks like a slice, and each device alone is right: only sharing is not."""
    out = np.zeros(16, np.int32)
    with Together(SOURCE, "last_wins", ["cpu", "cpu2"], backend=backend, policy="cpu") as kernel:
        assert kernel(out, global_size=N).verified
        kernel.policy = "even"
        execution = kernel(out, global_size=N)
    assert "the results of sharing are not those of one device (out: 16 of 16" in execution.reason
    assert out.tolist() == [N // 64 - 1] * 16


def test_parts_are_measured_at_once_and_apart(backend: OpenCLBackend) -> None:
    x, y = np.arange(N, dtype=np.float32), np.ones(N, np.float32)
    with Together(SOURCE, "saxpy", ["cpu", "cpu3"], backend=backend, trust=True) as kernel:
        bound = kernel.bind(x, y, 2.0, N, global_size=N, local_size=64)
        found = bound.apart(Split({"cpu": 0.3, "cpu3": 0.7}), repeats=2)
    groups = {
        name: [{each.device: each.groups for each in outcome.devices} for _, outcome in launches]
        for name, launches in found.items()
    }
    assert groups == {"both": [{"cpu": 3, "cpu3": 7}] * 2, "cpu": [{"cpu": 3}] * 2, "cpu3": [{"cpu3": 7}] * 2}
    assert all(0 < outcome.seconds <= wall for launches in found.values() for wall, outcome in launches)


def test_the_oracle_searches_cuts_and_leaves_one_run(backend: OpenCLBackend) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    with Together(SOURCE, "saxpy", ["cpu", "cpu2"], backend=backend, policy="oracle") as kernel:
        execution = kernel(x, y, 1.0, N, global_size=N)
    assert y.tolist() == [1.0] * N
    assert set(execution.alone) == {"cpu", "cpu2"}
    assert "measured cuts" in execution.reason


def test_trial_launches_leave_the_arrays_as_they_are(backend: OpenCLBackend) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    with Together(SOURCE, "saxpy", ["cpu", "cpu2"], backend=backend) as kernel:
        bound = kernel.bind(x, y, 1.0, N, global_size=N)
        assert len(bound.time(Split.even(["cpu", "cpu2"]), repeats=2)) == 2
        assert bound.binding.shared["y"].tolist() == [0.0] * N


def test_shared_arrays_are_used_in_place(backend: OpenCLBackend) -> None:
    with Together(SOURCE, "saxpy", ["cpu", "cpu2"], backend=backend, policy="even") as kernel:
        x, y = kernel.array(N, np.float32), kernel.array(N, np.float32)
        x[:] = 5
        bound = kernel.bind(x, y, 1.0, N, global_size=N)
        assert bound.binding.shared["y"] is y
        bound.run("even")
        assert y.tolist() == [5.0] * N


def test_an_annotation_overrides_the_analysis(backend: OpenCLBackend) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    with Together(
        SOURCE, "saxpy", ["cpu", "cpu3"], backend=backend, policy="even", merges={"y": "diff"}
    ) as kernel:
        assert kernel(x, y, 1.0, N, global_size=N).merge == {"y": "diff"}
    assert y.tolist() == [1.0] * N


def test_results_that_depend_on_the_compiler_are_not_believed(backend: OpenCLBackend) -> None:
    """Stands for PoCL's miscompiled kernels: optimisation must not change what is computed."""
    source = """
    #ifdef __OPTIMIZE__
    #define WRONG 1
    #else
    #define WRONG 0
    #endif
    kernel void f(global int *out) { out[get_global_id(0)] = get_global_id(0) + WRONG; }
    """
    out = np.zeros(N, np.int32)
    with Together(source, "f", ["cpu", "cpu2"], backend=backend, trust_source=True) as kernel:
        with pytest.raises(
            VerificationFailed, match=r"cpu2? .*, alone, disagrees .* 640 of 640 elements differ"
        ):
            kernel(out, global_size=N)
        assert not out.any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 2), "takes 4 arguments .x: float., y: float., a: float, n: int., not 2"),
        (
            (np.zeros(4, np.float64), np.zeros(4, np.float32), 1.0, 4),
            "'x' is float.: give float32, not float64",
        ),
        ((3.0, np.zeros(4, np.float32), 1.0, 4), "'x' is float. in global memory: give it an array"),
        ((np.zeros(4, np.float32), np.zeros(4, np.float32), 1.0, 2**40), "'n' is int, not 1099511627776"),
        ((np.zeros(4, np.float32), np.zeros(4, np.float32), 1.0, 1.5), "'n' is int, not 1.5"),
        ((np.zeros(4, ">f4"), np.zeros(4, np.float32), 1.0, 4), "in the order of another machine .>f4."),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(
    arguments: tuple, message: str, backend: OpenCLBackend
) -> None:
    with (
        Together(SOURCE, "saxpy", ["cpu"], backend=backend) as kernel,
        pytest.raises(InvalidSetting, match=message),
    ):
        kernel(*arguments, global_size=64)


def test_arguments_that_overlap_are_refused(backend: OpenCLBackend) -> None:
    values = np.zeros(128, np.float32)
    with (
        Together(SOURCE, "saxpy", ["cpu"], backend=backend) as kernel,
        pytest.raises(
            InvalidSetting, match=r"The arguments 'y' and 'x' overlap in memory, and 'y' is written"
        ),
    ):
        kernel(values[:64], values[32:96], 1.0, 64, global_size=64)


def test_a_work_group_that_is_too_large_is_refused(backend: OpenCLBackend) -> None:
    with (
        Together(SOURCE, "last_wins", ["cpu"], backend=backend) as kernel,
        pytest.raises(InvalidSetting, match=r"is more than the 4096 work-items cpu allows"),
    ):
        kernel(np.zeros(16, np.int32), global_size=8192, local_size=8192)


def test_an_unknown_policy_is_refused_before_anything_runs(backend: OpenCLBackend) -> None:
    with pytest.raises(UnknownName, match=r"No policy called 'learnd'. Did you mean 'learned'"):
        Together(SOURCE, "saxpy", ["cpu"], backend=backend, policy="learnd")


def test_the_public_name_brings_the_learned_models(backend: OpenCLBackend) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    with apportion.together(SOURCE, "saxpy", ["cpu", "cpu2"], backend=backend) as kernel:
        assert kernel.predictor is learned
        assert kernel(x, y, 1.0, N, global_size=N).policy == "learned+feedback"
    assert y.tolist() == [1.0] * N


def test_what_is_written_without_a_gap_is_not_copied_to_a_device_first(backend: OpenCLBackend) -> None:
    source = """
    kernel void whole(global int *out, int n) { if (get_global_id(0) < n) out[get_global_id(0)] = get_global_id(0); }
    kernel void data(global const int *in, global int *out) {
        if (in[get_global_id(0)]) out[get_global_id(0)] = get_global_id(0);
    }
    """
    out = np.full(N, 7, np.int32)
    with Together(source, "whole", ["cpu", "cpu3"], backend=backend, policy="even") as kernel:
        for n, covered in ((N, {"out"}), (600, set())):
            kernel(out, n, global_size=N)
            assert kernel.bind(out, n, global_size=N).case.covered == covered
            out[:] = 7
            kernel(out, n, global_size=N)
            assert out.tolist() == [*range(n), *[7] * (N - n)]
    with Together(source, "data", ["cpu", "cpu3"], backend=backend, policy="even") as kernel:
        given = np.ones(N, np.int32)
        kernel(given, out, global_size=N)
        assert kernel.bind(given, out, global_size=N).case.covered == set()
        given[::2], out[:] = 0, 7
        kernel(given, out, global_size=N)
        assert out.tolist() == [i if i % 2 else 7 for i in range(N)]


def test_large_arrays_go_through_pinned_chunks_and_arrive_whole(backend: OpenCLBackend) -> None:
    count = 9 << 20  # 36 MiB: three chunks, the last one not full
    x = np.arange(count, dtype=np.float32)
    with Together(SOURCE, "saxpy", ["cpu3"], backend=backend, trust=True) as kernel:
        y = np.ones(count, np.float32)
        kernel(x, y, 2.0, count, global_size=count)
    assert np.array_equal(y, 2 * x + 1)


def test_a_kernel_that_pocl_miscompiles_is_caught(backend: OpenCLBackend) -> None:
    """`continue` across a barrier, as in CHAI's RANSAC: every work-item of PoCL 3 to 5 appends, not one."""
    source = """
    kernel void trials(global const int *data, global int *list, global int *found, int rounds, int n) {
        local int model, total;
        int lane = get_local_id(0);
        for (int r = get_group_id(0); r < rounds; r += get_num_groups(0)) {
            if (lane == 0) { total = 0; model = data[r % n]; }
            barrier(CLK_LOCAL_MEM_FENCE);
            if (model == -1) continue;
            int mine = 0;
            for (int i = lane; i < n; i += get_local_size(0)) mine += data[i] > model;
            atomic_add(&total, mine);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lane == 0) { if (total < n / 2) list[atomic_inc(found)] = r; }
        }
    }
    """
    data = np.random.default_rng(0).integers(-1, 50, 64).astype(np.int32)
    expected = [r for r in range(128) if data[r % 64] != -1 and (data > data[r % 64]).sum() < 32]
    found, listed = np.zeros(1, np.int32), np.full(128 * 64, -1, np.int32)
    with Together(source, "trials", ["cpu"], backend=backend) as kernel:
        try:
            kernel(data, listed, found, 128, 64, global_size=64, local_size=16)
        except VerificationFailed as error:
            assert "disagrees with another compiler about what 'trials' computes" in str(error)  # noqa: PT017
            assert not found.any()
        else:  # a PoCL that compiles it rightly
            assert sorted(listed[: found[0]].tolist()) == expected


def test_three_dimensions_are_cut_along_planes(devices: list[str], backend: OpenCLBackend) -> None:
    source = """
    kernel void cells(global int *out, int w, int h) {
        size_t x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
        out[(z * h + y) * w + x] = 100 * z + 10 * y + x + 1000 * get_num_groups(2);
    }
    """
    out = np.zeros((8, 4, 8), np.int32)
    with Together(source, "cells", devices, backend=backend, policy="even") as kernel:
        bound = kernel.bind(out, 8, 4, global_size=(8, 4, 8), local_size=(4, 2, 1))
        assert bound.case.dimension == 2
        execution = kernel(out, 8, 4, global_size=(8, 4, 8), local_size=(4, 2, 1))
    assert execution.merge == {"out": "slice"}
    assert min(execution.split.values()) > 0
    expected = [[[100 * z + 10 * y + x + 8000 for x in range(8)] for y in range(4)] for z in range(8)]
    assert out.tolist() == expected


def test_structures_are_passed_by_value_and_in_arrays(devices: list[str], backend: OpenCLBackend) -> None:
    source = """
    typedef struct { float mass; int kind; } Body;
    typedef struct { float scale; int shift; } Change;
    kernel void changed(global const Body *bodies, global float *out, Change change) {
        int i = get_global_id(0);
        out[i] = (bodies[i].mass + change.shift) * change.scale + bodies[i].kind;
    }
    """
    bodies = np.zeros(N, np.dtype([("mass", np.float32), ("kind", np.int32)]))
    bodies["mass"], bodies["kind"] = np.arange(N), 7
    change = np.array((0.5, 3), np.dtype([("scale", np.float32), ("shift", np.int32)]))
    out = np.zeros(N, np.float32)
    with Together(source, "changed", devices, backend=backend, policy="even") as kernel:
        assert kernel(bodies, out, change.tobytes(), global_size=N).verified
        assert out.tolist() == [(i + 3) * 0.5 + 7 for i in range(N)]
        with pytest.raises(InvalidSetting, match=r"'change' is .* of 8 bytes, not 3"):
            kernel(bodies, out, b"abc", global_size=N)


def test_a_launch_that_comes_again_is_not_sent_again_and_values_still_count(backend: OpenCLBackend) -> None:
    with Together(SOURCE, "saxpy", ["cpu", "cpu3"], backend=backend, policy="even", trust=True) as kernel:
        x, y = kernel.array(N, np.float32), kernel.array(N, np.float32)
        x[:] = 1
        for a, expected in ((2.0, 2.0), (3.0, 5.0), (2.0, 7.0), (3.0, 10.0)):
            kernel(x, y, a, N, global_size=N)
            assert y.tolist() == [expected] * N
        assert len(kernel.bind(x, y, 2.0, N, global_size=N).case.plans) == 2
        other = kernel.array(N, np.float32)
        kernel(x, other, 2.0, N, global_size=N)  # other memory is another launch
        assert (other.tolist(), y.tolist()) == ([2.0] * N, [10.0] * N)


def test_a_worker_that_was_replaced_is_told_its_launches_anew() -> None:
    options = DriverOptions(pocl_instances=2, threads=1, vendors=False)
    with (
        OpenCLBackend(options) as own,
        Together(SOURCE, "saxpy", backend=own, policy="even", trust=True) as kernel,
    ):
        x, y = kernel.array(N, np.float32), kernel.array(N, np.float32)
        x[:] = 1
        kernel(x, y, 1.0, N, global_size=N)
        own.close()
        kernel(x, y, 1.0, N, global_size=N)
        assert y.tolist() == [2.0] * N


def test_conflicts_that_only_later_data_bring_leave_nothing_behind(backend: OpenCLBackend) -> None:
    source = "kernel void put(global const int *at, global int *out) { out[at[get_global_id(0)]] = get_global_id(0); }"
    with Together(source, "put", ["cpu", "cpu2"], backend=backend, policy="even") as kernel:
        at, out = kernel.array(N, np.int32), kernel.array(N, np.int32)
        at[:] = np.arange(N)[::-1]
        assert kernel(at, out, global_size=N).verified
        assert out.tolist() == list(range(N))[::-1]
        at[:], out[:] = 5, -1  # everybody writes one place
        execution = kernel(at, out, global_size=N)
    assert "1 conflicts between the devices' writes" in execution.reason
    assert sorted(execution.split.values()) == [0.0, 1.0]
    assert out[5] >= 0
    assert (np.delete(out, 5) == -1).all()


def test_a_forecast_from_speeds_counts_transfers_for_devices_with_their_own_memory(
    backend: OpenCLBackend,
) -> None:
    count = 1 << 16
    x, y = np.ones(count, np.float32), np.zeros(count, np.float32)
    forecasts = []
    for devices in (["cpu", "cpu2"], ["cpu", "cpu3"]):
        with Together(SOURCE, "saxpy", devices, backend=backend, trust=True, policy="learned") as kernel:
            bound = kernel.bind(x, y, 1.0, count, global_size=count)
            bound.run("learned")
            assert bound.case.forecast is not None
            forecasts.append((bound.case.forecast, {info.id: info for info in kernel.devices}))
    (zero_copy, infos), (copying, _) = forecasts
    speeds = infos["cpu"].calibration
    assert speeds is not None
    assert zero_copy.models["cpu"].fixed == speeds.launch_seconds
    assert zero_copy.spread == copying.spread == 5.0
    # What goes there and back, 12 bytes for each work-item, stands in the rate.
    assert copying.models["cpu3"].rate > copying.models["cpu"].rate


def test_three_devices_settle_by_feedback(backend: OpenCLBackend) -> None:
    x, y = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    with Together(SOURCE, "saxpy", ["cpu", "cpu2", "cpu3"], backend=backend) as kernel:
        executions = [kernel(x, y, 1.0, N, global_size=N) for _ in range(6)]
    assert y.tolist() == (6 * x).tolist()
    assert all(sum(execution.split.values()) == pytest.approx(1) for execution in executions)
    assert executions[-1].reason.startswith("earlier launches predict")


def test_the_callers_time_holds_the_launchs(backend: OpenCLBackend) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    with Together(SOURCE, "saxpy", ["cpu", "cpu3"], backend=backend, policy="even") as kernel:
        for _ in range(2):
            execution = kernel(x, y, 1.0, N, global_size=N)
    assert execution.wall_seconds > execution.seconds
    for time in execution.outcome.devices:
        assert not time.cold
        assert 0 <= time.began <= time.seconds
        assert 0 < time.busy <= time.kernel


def test_a_predictor_that_leaves_a_device_out_is_refused(backend: OpenCLBackend) -> None:
    half = Forecast({"cpu": CostModel(0.0, 1.0)}, 2.0, "a test")
    with (
        Together(
            SOURCE, "saxpy", ["cpu", "cpu2"], backend=backend, predictor=lambda query, devices: half
        ) as kernel,
        pytest.raises(InvalidSetting, match=r"The predictor says nothing of cpu2"),
    ):
        kernel(np.ones(N, np.float32), np.zeros(N, np.float32), 1.0, N, global_size=N)


def test_a_function_that_is_inline_alone_is_found_by_every_driver(backend: OpenCLBackend) -> None:
    source = """
inline float twice(float a);
inline float twice(float a) { for (int k = 0; k < 3; k++) a = native_sin(a); return 2 * a; }
kernel void k(global float *x) { int i = get_global_id(0); x[i] = i < 7 ? twice(x[i]) : twice(-x[i]); }
"""
    x = np.zeros(N, np.float32)
    with Together(source, "k", ["cpu", "cpu2"], backend=backend, policy="even") as kernel:
        assert kernel(x, global_size=N).verified


def test_macros_of_the_build_do_not_reach_headers_of_the_driver(backend: OpenCLBackend) -> None:
    # PoCL's own header has parameters of this name.
    source = apportion.Source(
        "kernel void k(global int *x) { x[get_global_id(0)] = sampler + image; }",
        "opencl",
        build=BuildOptions(defines=("sampler=(1 | 4)", "image=16")),
    )
    x = np.zeros(N, np.int32)
    with Together(source, "k", ["cpu", "cpu2"], backend=backend, policy="even") as kernel:
        kernel(x, global_size=N)
    assert x.tolist() == [21] * N


def test_what_is_computed_in_single_precision_is_compared_so(backend: OpenCLBackend) -> None:
    # Compilers contract and order this in their own ways; kept in double, each way is seen.
    source = """
kernel void k(global double *x) {
    float v = get_global_id(0) * 0.1f, s = 0;
    for (int k = 1; k < 200; k++) s += native_exp(v * 0.01f) / k + v * s * 1e-4f;
    x[get_global_id(0)] = s;
}
"""
    x = np.zeros(N)
    with Together(source, "k", ["cpu", "cpu2"], backend=backend, policy="cpu") as kernel:
        assert kernel.access.computes_in == 4
        assert kernel(x, global_size=N).verified


def test_code_for_a_newer_version_of_the_language_is_compiled_as_that(backend: OpenCLBackend) -> None:
    text = """
global int table[] = {3, 5};
kernel void look(global int *x) { x[get_global_id(0)] = table[get_global_id(0) & 1]; }
"""
    found = np.zeros(256, np.int32)
    with Together(text, "look", ["cpu", "cpu2"], backend=backend, policy=0.5) as kernel:
        kernel(found, global_size=256, local_size=64)
    assert found.tolist() == [3, 5] * 128


def test_lanes_that_a_kernel_never_sets_are_not_compared(backend: OpenCLBackend) -> None:
    source = """
kernel void forces(global const float4 *x, global float4 *f, int n) {
    int i = get_global_id(0);
    float4 sum;
    sum.x = sum.y = sum.z = 0;
    for (int j = 0; j < n; j++) { float4 d = x[j] - x[i]; sum.x += d.x; sum.y += d.y; sum.z += sqrt(d.z * d.z); }
    f[i] = sum;
}
"""
    x, f = np.ones(4 * N, np.float32), np.zeros(4 * N, np.float32)
    with Together(source, "forces", ["cpu", "cpu2"], backend=backend, policy="cpu") as kernel:
        use = kernel.access.argument("f")
        assert (use.lanes, use.undefined_lanes) == (4, {3})
        assert kernel(x, f, 8, global_size=N).verified
    ours, theirs = np.arange(8.0), np.arange(8.0)
    theirs[[3, 7]] = np.nan
    assert _without(ours, 4, frozenset([3])).tolist() == _without(theirs, 4, frozenset([3])).tolist()
    assert _without(theirs, 4, frozenset([2])).tolist() != _without(ours, 4, frozenset([2])).tolist()
