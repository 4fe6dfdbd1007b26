"""The model of relative performance: features, answers, sigmas on unseen applications, familiarity, files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from apportion.data.counter_table import AIWC
from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.learn.relative.performance import measures_of
from apportion.learn.relative.relative_features import features_of, time_features
from apportion.learn.relative.relative_model import Reference, RelativeModel
from apportion.learn.relative.relative_table import RelativeTable, table_of


@pytest.fixture(scope="module")
def table(timed_runs) -> RelativeTable:
    return table_of(timed_runs, name="made up", counters=AIWC)


@pytest.fixture(scope="module")
def model(table: RelativeTable) -> RelativeModel:
    reference = Reference(
        table.runs, table.application, table.systems, table.counters, table.values, table.log_times
    )
    return RelativeModel("made up", reference, "shape", 10.0, "shape", 10.0, {"seed": 1})


def test_counts_are_taken_in_their_logarithm_and_ratios_as_they_are() -> None:
    names = ("total_instruction_count", "fp_ratio", "granularity")
    found = features_of("counters", names, np.array([[1023.0, 0.25, 2.0**-10]]))
    assert found.tolist() == [[10, 0.25, pytest.approx(-10, abs=1e-6)]]
    with pytest.raises(UnknownName, match="No set of features called 'shapes'"):
        features_of("shapes", names, np.zeros((1, 3)))
    with pytest.raises(InvalidSetting, match="need the counter 'workitems'"):
        features_of("shape", names, np.ones((1, 3)))


def test_a_time_joins_per_instruction_and_per_byte() -> None:
    names = ("total_instruction_count", "total_memory_footprint")
    (found,) = time_features(names, np.array([[2.0**20, 2.0**10]]), np.array([-10.0])).tolist()
    assert found[:3] == [-10, -30, -20]
    assert found[3] == pytest.approx(np.log2(2**-10 * 1e6) - 6)  # about a millisecond: above both hinges


def test_it_orders_runs_of_applications_that_it_never_saw(model: RelativeModel, table: RelativeTable) -> None:
    truth = table.log_times
    always = np.tile(truth.mean(axis=0), (len(truth), 1))
    constant = measures_of(truth, always)["regret"]
    counters, timed = (measures_of(truth, model.held_out(system))["regret"] for system in (None, 3))
    assert timed < counters < constant


def test_held_out_answers_do_not_depend_on_the_applications_own_times(model: RelativeModel) -> None:
    reference = model.reference
    mine = np.array(reference.application) == "app2"
    times = reference.log_times.copy()
    times[mine] = times[mine][:, ::-1]
    other = RelativeModel(
        "changed",
        Reference(reference.runs, reference.application, reference.systems, reference.counters,
                  reference.values, times),
        model.features, model.strength, model.timed_features, model.timed_strength,
    )  # fmt: skip
    np.testing.assert_allclose(other.held_out(None)[mine], model.held_out(None)[mine])


def test_a_known_time_narrows_the_answer_and_two_fix_both(model: RelativeModel) -> None:
    row, times = model.reference.values[[5]], model.reference.log_times[5]
    plain = model.vector(row)
    one = model.vector(row, {"new-gpu": times[3]})
    two = model.vector(row, {"new-gpu": times[3], "slow-cpu": times[0]})
    assert one.sigma.mean() < plain.sigma.mean()
    assert two.sigma.mean() < one.sigma.mean()
    assert two.vector[0] - two.vector[3] == pytest.approx(times[0] - times[3], abs=1e-6)
    for answer in (plain, one, two):
        assert answer.vector.mean() == pytest.approx(0, abs=1e-9)
    with pytest.raises(UnknownName, match="No system called 'new-cpu'"):
        model.vector(row, {"new-cpu": 1.0})


def test_sigmas_of_fewer_systems_are_relative_to_those_alone(model: RelativeModel) -> None:
    row = model.reference.values[[0]]
    both = model.vector(row, over=("slow-cpu", "quick-cpu"))
    assert both.sigma.shape == (2,)
    # The two CPUs differ by a factor that never changes; a CPU and a GPU do not.
    assert both.sigma.max() < model.vector(row, over=("slow-cpu", "new-gpu")).sigma.min()


def test_a_model_on_fewer_systems_is_as_if_it_never_knew_the_others(model: RelativeModel) -> None:
    fewer = model.on(("new-gpu", "slow-cpu"))
    row = model.reference.values[[3]]
    whole, part = model.vector(row).vector, fewer.vector(row).vector
    assert part[0] - part[1] == pytest.approx(whole[3] - whole[0])
    with pytest.raises(InvalidSetting, match="two systems at least"):
        model.on(("new-gpu",))
    with pytest.raises(UnknownName, match="No system called 'gpu'"):
        model.on(("gpu", "slow-cpu"))


def test_the_known_are_familiar_and_the_far_are_not(model: RelativeModel) -> None:
    row = model.reference.values[[4]]
    near, far = model.vector(row), model.vector(row * 2.0**12)
    assert (near.distance, near.familiarity) == (pytest.approx(0, abs=1e-3), 1)
    assert far.distance > 1
    assert far.familiarity == 0
    assert far.sigma.min() > near.sigma.max()


def test_missing_counters_get_usual_values_but_some_cannot_be_missing(model: RelativeModel) -> None:
    values = dict(zip(AIWC, model.reference.values[0].tolist(), strict=True))
    row, missing = model.row_of({**values, "opcode": None})
    assert missing == ("opcode",)
    assert row[0, AIWC.index("opcode")] == pytest.approx(
        np.median(model.reference.values[:, AIWC.index("opcode")])
    )
    del values["workitems"]
    with pytest.raises(InvalidSetting, match="The profile has no workitems"):
        model.row_of(values)


def test_what_is_written_is_read_back(model: RelativeModel, tmp_path) -> None:
    model.save(tmp_path)
    back = RelativeModel.load(tmp_path)
    row = model.reference.values[[7]]
    assert back.reference.runs == model.reference.runs
    assert back.about == {"seed": 1}
    np.testing.assert_array_equal(back.vector(row).sigma, model.vector(row).sigma)
    said = json.loads((tmp_path / "artifact.json").read_text())
    said["hyperparameters"]["runs"].pop()
    (tmp_path / "artifact.json").write_text(json.dumps(said))
    with pytest.raises(MalformedInput, match="is no model of relative performance"):
        RelativeModel.load(tmp_path)
    with pytest.raises(UnreadableFile):
        RelativeModel.load(tmp_path / "absent")


def test_known_runs_must_have_one_shape(model: RelativeModel) -> None:
    reference = model.reference
    with pytest.raises(InvalidSetting, match=r"values must have the shape \(24, 31\)"):
        Reference(reference.runs, reference.application, reference.systems, reference.counters,
                  reference.values[:3], reference.log_times)  # fmt: skip
