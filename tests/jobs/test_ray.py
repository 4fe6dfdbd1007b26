"""Items over a real Ray cluster of two nodes, one of which is killed."""

from __future__ import annotations

import time
import warnings

import pytest

from apportion.cli import main
from apportion.data.store import DataflowStore
from apportion.errors import DeadlineExceeded, InvalidSetting
from apportion.testing.runner_checks import RunnerChecks, by_index, double

pytestmark = [
    pytest.mark.xdist_group("ray"),
    # Ray starts its processes by forking, which JAX warns of where another test loaded it.
    pytest.mark.filterwarnings("ignore:os.fork"),
]

ray = pytest.importorskip("ray", reason="the package ray is not installed")

from apportion.jobs import runner_of  # noqa: E402
from apportion.jobs.ray import RayRunner  # noqa: E402
from apportion.schedule.ray import placed, placement_options  # noqa: E402


def node(name):
    return {
        "num_cpus": 2,
        "resources": {name: 1},
        "labels": {"system": name},
        "object_store_memory": 100 << 20,
    }


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster  # it starts nothing before it is made

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        there = Cluster(initialize_head=True, head_node_args={**node("quartz"), "include_dashboard": False})
        there.add_node(**node("lassen"))
        ray.init(address=there.address, logging_level="ERROR", log_to_driver=False)
        there.wait_for_nodes()
        yield there
        ray.shutdown()
        there.shutdown()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
class TestRayRunner(RunnerChecks):
    @pytest.fixture(autouse=True)
    def _on_the_cluster(self, cluster):
        self.address = cluster.address

    def runner(self):
        return RayRunner(self.address, workers=2)


def nap(seconds):
    time.sleep(seconds)
    return seconds


def system_of(item):
    del item
    context = ray.get_runtime_context()
    return next(one["Labels"].get("system") for one in ray.nodes() if one["NodeID"] == context.get_node_id())


@pytest.fixture
def sleeping(tmp_path, monkeypatch):
    """A function that workers can import: they run in processes of their own."""
    return time.sleep


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_deadline_costs_the_item_that_is_late(cluster, sleeping):
    runner = RayRunner(cluster.address, workers=2, deadline_seconds=1.5)
    outcomes = by_index(runner.map(sleeping, [0.0, 30.0, 0.1]))
    assert [outcomes[index].succeeded for index in range(3)] == [True, False, True]
    assert isinstance(outcomes[1].error, DeadlineExceeded)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_tasks_go_to_the_system_that_is_predicted_to_be_fast_and_fall_back_in_order(cluster):
    where = ray.remote(num_cpus=1)(system_of)
    found = [
        ray.get(placed(where, seconds).remote(0), timeout=60)
        for seconds in (
            {"quartz": 4, "lassen": 1},
            {"quartz": 1, "lassen": 4},
            {"corona": 1, "lassen": 2, "quartz": 3},
        )
    ]
    assert found == ["lassen", "quartz", "lassen"]


def test_a_much_slower_system_is_no_fallback_and_one_must_be_able():
    options = placement_options({"a": 1.0, "b": 3.0, "c": 50.0, "d": float("inf")})
    assert options == {
        "label_selector": {"system": "a"},
        "fallback_strategy": [{"label_selector": {"system": "b"}}],
    }
    with pytest.raises(InvalidSetting, match="can run on none"):
        placement_options({"a": float("inf")})
    with pytest.raises(InvalidSetting, match="must be positive"):
        placement_options({"a": -1})


def test_a_runner_is_written_as_a_word():
    assert runner_of("ray:head:6379") == RayRunner("head:6379")
    assert runner_of("ray://head:10001", workers=3) == RayRunner("ray://head:10001", workers=3)
    with pytest.raises(InvalidSetting, match="takes no place"):
        runner_of("local:here")


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_no_outcome_is_lost_when_a_node_dies_in_the_middle(cluster, sleeping):
    extra = cluster.add_node(**node("corona"))
    cluster.wait_for_nodes()
    runner = RayRunner(cluster.address, retries=3)
    outcomes = runner.map(sleeping, [0.4] * 24)
    found = [next(outcomes) for _ in range(6)]
    cluster.remove_node(extra, allow_graceful=False)
    found += list(outcomes)
    assert sorted(outcome.item_index for outcome in found) == list(range(24))
    assert all(outcome.succeeded for outcome in found)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_labels_keep_work_on_the_nodes_that_have_them(cluster):
    runner = RayRunner(cluster.address, workers=2, labels={"system": "lassen"})
    assert {outcome.unwrap() for outcome in runner.map(double, [1, 2])} == {2, 4}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_dataset_labelled_on_a_cluster_is_the_one_labelled_here(cluster, tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for number in range(1, 7):
        steps = "\n".join(f"  %v{i} = add i32 %v{i - 1}, {i}" for i in range(1, number + 1))
        (programs / f"chain{number}.ll").write_text(
            f"define i32 @f(i32 %v0) {{\n{steps}\n  ret i32 %v{number}\n}}\n"
        )
    fingerprints = []
    for name, words in (("here", ()), ("there", ("--runner", f"ray:{cluster.address}", "--jobs", "2"))):
        with pytest.raises(SystemExit) as leaving:
            main(["dataset", "dataflow", str(programs), "--out", str(tmp_path / name), *words])
        assert not leaving.value.code
        fingerprints.append(DataflowStore.open(tmp_path / name).fingerprint)
    assert fingerprints[0] == fingerprints[1]
