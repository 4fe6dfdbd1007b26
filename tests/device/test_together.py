"""Kernels shared for real between independent PoCL devices; the third copies arrays as a discrete device does."""

from __future__ import annotations

import numpy as np
import pytest

import apportion
from apportion.device.base import LocalMemory
from apportion.device.policies import CostModel
from apportion.device.split import Split
from apportion.device.together import Together
from apportion.device.worker import Worker
from apportion.errors import InvalidSetting, NotSplittable, UnknownName, VerificationFailed

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


@pytest.fixture(params=[["cpu", "cpu2"], ["cpu", "cpu3"], ["cpu", "cpu2", "cpu3"]], ids="+".join)
def devices(request: pytest.FixtureRequest) -> list[str]:
    return request.param  # type: ignore[no-any-return]


def test_the_result_of_sharing_is_that_of_one_device(devices: list[str], worker: Worker) -> None:
    x, y = np.arange(N, dtype=np.float32), np.ones(N, np.float32)
    with Together(SOURCE, "saxpy", devices, worker=worker, policy="even") as kernel:
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


def test_a_kernel_sees_the_whole_range_whatever_its_part(devices: list[str], worker: Worker) -> None:
    out = np.zeros(10, np.int32)
    with Together(SOURCE, "groups", devices, worker=worker, policy="even") as kernel:
        kernel(out, LocalMemory(4 * 64), global_size=N, local_size=64)
    assert out.tolist() == [N + 10 + 64 * group + 63 for group in range(10)]


def test_two_dimensions_are_cut_along_rows(worker: Worker) -> None:
    out = np.zeros((32, 64), np.int32)
    with Together(SOURCE, "plane", ["cpu", "cpu3"], worker=worker, policy=0.25) as kernel:
        bound = kernel.bind(out, 64, global_size=(64, 32), local_size=(16, 4))
        assert bound.case.dimension == 1
        execution = kernel(out, 64, global_size=(64, 32), local_size=(16, 4))
    assert execution.split == {"cpu": 0.25, "cpu3": 0.75}
    assert out.tolist() == [[1000 * y + x for x in range(64)] for y in range(32)]


def test_chunks_give_the_same_result(worker: Worker) -> None:
    x, y = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    with Together(SOURCE, "saxpy", ["cpu", "cpu3"], worker=worker, policy="dynamic") as kernel:
        execution = kernel(x, y, 3.0, N, global_size=N)
    assert y.tolist() == (3 * x).tolist()
    assert sum(execution.split.values()) == pytest.approx(1)
    assert execution.reason.endswith("the rest in chunks")


def test_atomics_whose_results_are_used_forbid_splitting(worker: Worker) -> None:
    data, out, count = np.arange(N, dtype=np.int32), np.zeros(N, np.int32), np.zeros(1, np.int32)
    with Together(SOURCE, "queue", ["cpu", "cpu2"], worker=worker) as kernel:
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


def test_conflicting_writes_are_counted_and_one_device_takes_over(worker: Worker) -> None:
    out = np.full(16, -1, np.int32)
    with Together(SOURCE, "last_wins", ["cpu", "cpu2"], worker=worker) as kernel:
        execution = kernel(out, global_size=N)
    assert execution.conflicts == 16
    assert sorted(execution.split.values()) == [0.0, 1.0]
    assert "16 conflicts between the devices' writes" in execution.reason


def test_feedback_settles_on_rates_it_has_seen(worker: Worker) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    with Together(SOURCE, "saxpy", ["cpu", "cpu2"], worker=worker) as kernel:
        first = kernel(x, y, 1.0, N, global_size=N)
        second = kernel(x, y, 1.0, N, global_size=N)
    assert first.reason == "from the devices' descriptions: nothing was measured yet"
    assert second.reason.startswith("earlier launches foretell")
    assert y.tolist() == [2.0] * N


def test_a_device_that_its_description_belittles_is_measured_all_the_same(worker: Worker) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    with Together(SOURCE, "saxpy", ["cpu", "cpu2"], worker=worker, policy="cpu") as kernel:
        kernel(x, y, 1.0, N, global_size=N)
        kernel.policy = "feedback"
        probed = kernel(x, y, 1.0, N, global_size=N)
        settled = kernel(x, y, 1.0, N, global_size=N)
    assert probed.reason == "cpu2 gets a part to be measured by"
    assert probed.split["cpu2"] >= 0.1
    assert settled.reason.startswith("earlier launches foretell")
    assert y.tolist() == [3.0] * N


def test_a_predictor_is_asked_at_the_first_launch(worker: Worker) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    costs = {"cpu": CostModel(0.0, 4.0), "cpu2": CostModel(0.0, 1.0)}
    with Together(SOURCE, "saxpy", ["cpu", "cpu2"], worker=worker, predictor=lambda devices: costs) as kernel:
        execution = kernel(x, y, 1.0, N, global_size=N)
    assert execution.split == {"cpu": 0.2, "cpu2": 0.8}
    assert execution.reason == "the learned model foretells it"


def test_the_oracle_searches_cuts_and_leaves_one_run(worker: Worker) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    with Together(SOURCE, "saxpy", ["cpu", "cpu2"], worker=worker, policy="oracle") as kernel:
        execution = kernel(x, y, 1.0, N, global_size=N)
    assert y.tolist() == [1.0] * N
    assert set(execution.alone) == {"cpu", "cpu2"}
    assert "measured cuts" in execution.reason


def test_trial_launches_leave_the_arrays_as_they_are(worker: Worker) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    with Together(SOURCE, "saxpy", ["cpu", "cpu2"], worker=worker) as kernel:
        bound = kernel.bind(x, y, 1.0, N, global_size=N)
        assert len(bound.time(Split.even(["cpu", "cpu2"]), repeats=2)) == 2
        assert bound.binding.shared["y"].tolist() == [0.0] * N


def test_shared_arrays_are_used_in_place(worker: Worker) -> None:
    with Together(SOURCE, "saxpy", ["cpu", "cpu2"], worker=worker, policy="even") as kernel:
        x, y = kernel.array(N, np.float32), kernel.array(N, np.float32)
        x[:] = 5
        bound = kernel.bind(x, y, 1.0, N, global_size=N)
        assert bound.binding.shared["y"] is y
        bound.run("even")
        assert y.tolist() == [5.0] * N


def test_an_annotation_overrides_the_analysis(worker: Worker) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    with Together(
        SOURCE, "saxpy", ["cpu", "cpu3"], worker=worker, policy="even", merges={"y": "diff"}
    ) as kernel:
        assert kernel(x, y, 1.0, N, global_size=N).merge == {"y": "diff"}
    assert y.tolist() == [1.0] * N


def test_results_that_depend_on_the_compiler_are_not_believed(worker: Worker) -> None:
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
    with Together(source, "f", ["cpu", "cpu2"], worker=worker) as kernel:
        with pytest.raises(
            VerificationFailed, match=r"cpu .*, alone, disagrees .* 640 of 640 elements differ"
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
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(arguments: tuple, message: str, worker: Worker) -> None:
    with (
        Together(SOURCE, "saxpy", ["cpu"], worker=worker) as kernel,
        pytest.raises(InvalidSetting, match=message),
    ):
        kernel(*arguments, global_size=64)


def test_arguments_that_overlap_are_refused(worker: Worker) -> None:
    values = np.zeros(128, np.float32)
    with (
        Together(SOURCE, "saxpy", ["cpu"], worker=worker) as kernel,
        pytest.raises(
            InvalidSetting, match=r"The arguments 'y' and 'x' overlap in memory, and 'y' is written"
        ),
    ):
        kernel(values[:64], values[32:96], 1.0, 64, global_size=64)


def test_a_work_group_that_is_too_large_is_refused(worker: Worker) -> None:
    with (
        Together(SOURCE, "last_wins", ["cpu"], worker=worker) as kernel,
        pytest.raises(InvalidSetting, match=r"is more than the 4096 work-items cpu allows"),
    ):
        kernel(np.zeros(16, np.int32), global_size=8192, local_size=8192)


def test_an_unknown_policy_is_refused_before_anything_runs(worker: Worker) -> None:
    with pytest.raises(UnknownName, match=r"No policy called 'fedback'. Did you mean 'feedback'"):
        Together(SOURCE, "saxpy", ["cpu"], worker=worker, policy="fedback")


def test_the_public_name_is_there() -> None:
    assert apportion.together is Together


def test_what_is_written_without_a_gap_is_not_copied_to_a_device_first(worker: Worker) -> None:
    source = """
    kernel void whole(global int *out, int n) { if (get_global_id(0) < n) out[get_global_id(0)] = get_global_id(0); }
    kernel void data(global const int *in, global int *out) {
        if (in[get_global_id(0)]) out[get_global_id(0)] = get_global_id(0);
    }
    """
    out = np.full(N, 7, np.int32)
    with Together(source, "whole", ["cpu", "cpu3"], worker=worker, policy="even") as kernel:
        for n, covered in ((N, {"out"}), (600, set())):
            kernel(out, n, global_size=N)
            assert kernel.bind(out, n, global_size=N).case.covered == covered
            out[:] = 7
            kernel(out, n, global_size=N)
            assert out.tolist() == [*range(n), *[7] * (N - n)]
    with Together(source, "data", ["cpu", "cpu3"], worker=worker, policy="even") as kernel:
        given = np.ones(N, np.int32)
        kernel(given, out, global_size=N)
        assert kernel.bind(given, out, global_size=N).case.covered == set()
        given[::2], out[:] = 0, 7
        kernel(given, out, global_size=N)
        assert out.tolist() == [i if i % 2 else 7 for i in range(N)]


def test_large_arrays_go_through_pinned_chunks_and_arrive_whole(worker: Worker) -> None:
    count = 9 << 20  # 36 MiB: three chunks, the last one not full
    x = np.arange(count, dtype=np.float32)
    with Together(SOURCE, "saxpy", ["cpu3"], worker=worker, trust=True) as kernel:
        y = np.ones(count, np.float32)
        kernel(x, y, 2.0, count, global_size=count)
    assert np.array_equal(y, 2 * x + 1)


def test_a_kernel_that_pocl_miscompiles_is_caught(worker: Worker) -> None:
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
    with Together(source, "trials", ["cpu"], worker=worker) as kernel:
        try:
            kernel(data, listed, found, 128, 64, global_size=64, local_size=16)
        except VerificationFailed as error:
            assert "disagrees with another compiler about what 'trials' computes" in str(error)  # noqa: PT017
            assert not found.any()
        else:  # a PoCL that compiles it rightly
            assert sorted(listed[: found[0]].tolist()) == expected
