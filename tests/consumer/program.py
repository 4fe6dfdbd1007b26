# mypy: disallow-any-expr
"""A program by somebody who installed apportion: it uses every public name, with every type known.

`tests/test_facade.py` runs it, and `make check` has mypy look at it: strict, and no expression may be of an unknown type.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import apportion

SAXPY = """
kernel void saxpy(const float a, global const float *x, global float *y, const int n)
{
    const int i = get_global_id(0);
    if (i < n)
        y[i] += a * x[i];
}
"""


def where_to_run() -> apportion.Prediction:
    source = apportion.Source(SAXPY, "opencl", "saxpy.cl")
    answer = apportion.predict(source, local_size=64, bytes=1 << 20, global_size=1 << 17)
    low, high = answer.interval
    assert 0 <= low <= answer.cpu_share <= high <= 1
    assert answer.device.startswith(("cpu", "gpu"))  # cpu2 where a driver offers two
    why: apportion.Explanation = apportion.explain(source, local_size=64, bytes=1 << 20)
    strongest: str = why.strongest[0].text
    assert strongest
    query = apportion.Query(source, 64, 1 << 20)
    for each in apportion.predict_all([query]):
        if isinstance(each, apportion.ApportionError):
            raise each
        assert each.confidence == answer.confidence
    return answer


def what_it_is() -> apportion.ProgramGraph:
    graph = apportion.graph_of(
        apportion.Source(SAXPY, "opencl", "saxpy.cl"), compile=apportion.CompileOptions()
    )
    runs: list[apportion.AnalysisRun] = apportion.analyze(graph, "reachability", [1])
    assert runs[0].steps > 0
    return graph


def on_all_devices() -> apportion.Execution | None:
    found: tuple[apportion.DeviceInfo, ...] = apportion.devices()
    if not found:
        return None
    x, y = np.ones(1 << 17, np.float32), np.ones(1 << 17, np.float32)
    with apportion.share(SAXPY, "saxpy", [info.id for info in found]) as kernel:
        shared: apportion.Together = kernel
        execution = shared(2.0, x, y, 1 << 17, global_size=1 << 17, local_size=64)
    x.fill(3)
    assert np.array_equal(x, y)
    assert apportion.together is apportion.share
    return execution


def a_program_of_launches() -> bool:
    if not apportion.devices():
        return True
    ones = np.ones(1 << 10, np.float32)
    with apportion.session() as session:
        opened: apportion.Session = session
        x: apportion.SessionArray = opened.array(ones)
        y = opened.zeros(1 << 10, np.float32)
        saxpy = opened.kernel(SAXPY, "saxpy")
        for _ in range(3):
            saxpy(2.0, x, y, 1 << 10, global_size=1 << 10, local_size=64)
        where: str = opened.explain()[0].device
    return bool(where) and y.shape == (1 << 10,)


def add(*, step: int) -> int:
    return sum(range(0, 20_000, step))


def fastest() -> apportion.Tuning:
    space = apportion.Space({"step": apportion.Range(1, 32)})
    tunable = apportion.Tunable(add, {"step": (1, 2, 4, 8, 16, 32)})
    assert {"step": 7} in space.configurations
    assert apportion.Tolerance(relative=0.01).absolute is None
    tuning = apportion.tune(tunable, budget=6, progress=False)
    assert tuning.best["step"] in (1, 2, 4, 8, 16, 32)
    return tuning


def over_systems() -> apportion.Relative:
    counters: dict[str, float | None] = {
        "total_instruction_count": 1e8,
        "total_memory_footprint": 1e6,
        "workitems": 1e6,
        "barriers_per_instruction": 0.0,
        "branch_entropy_yokota": 0.2,
        "branch_entropy_average_linear": 0.1,
        "global_memory_address_entropy": 20.0,
        "local_memory_address_entropy_10": 10.0,
    }
    return apportion.relative_performance(
        apportion.Profile("mine", counters), systems=("i7-6700k", "gtx1080")
    )


def from_a_service(address: str) -> apportion.Client:
    return apportion.Client(address, seconds=5.0)


def main() -> None:
    assert apportion.LocalMemory(1024).nbytes == 1024
    print(f"apportion {apportion.__version__}")
    print(f"CPU's share {where_to_run().cpu_share:.2f}")
    print(f"{what_it_is().nodes} nodes")
    from_a_service("http://127.0.0.1:8765")
    print(f"steps of {fastest().best['step']}")
    print(f"relative: {', '.join(over_systems().order)}")
    assert a_program_of_launches()
    execution = on_all_devices()
    print("no device" if execution is None else f"shared by {len(execution.split)}")
    try:
        apportion.graph_of(Path("nowhere.cl"))
    except apportion.ApportionError as error:
        print(error)


if __name__ == "__main__":
    main()
