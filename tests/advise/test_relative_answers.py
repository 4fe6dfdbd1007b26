"""Answers for a run: from the shipped model and small ones, with added systems, from files, or none at all."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from apportion.advise.relative_answers import predict, read_profiles, relative_model, shipped, shipped_for
from apportion.advise.systems import KnownSystem, Sample
from apportion.data.counter_table import AIWC, CounterTable, Row
from apportion.data.published.aiwc import FOUR_SYSTEMS, read
from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.learn.relative.profile import Profile


def profile_of(run: int, *systems: str, times: float = 1.0) -> Profile:
    """A run that the shipped model knows, with its times on some systems."""
    reference = shipped().reference
    seconds = {
        name: 2 ** float(reference.log_times[run, reference.systems.index(name)]) * times for name in systems
    }
    values = dict(zip(reference.counters, reference.values[run].tolist(), strict=True))
    return Profile(reference.runs[run], values, seconds)


def twin_of(system: str, count: int, factor: float) -> KnownSystem:
    """A system that takes `factor` times as long as a known one, on every so-manieth known run."""
    reference = shipped().reference
    column = 2 ** reference.log_times[:, reference.systems.index(system)] * factor
    step = len(column) // count
    samples = [Sample(reference.runs[i], float(column[i])) for i in range(0, count * step, step)]
    return KnownSystem("twin", tuple(samples))


def test_the_shipped_models_times_are_those_that_were_published(shared_data) -> None:
    reference = shipped().reference
    published = read(shared_data / "aiwc").times()
    for number in (0, 41, 99):
        row = published.runs["run"].to_list().index(reference.runs[number])
        for system in FOUR_SYSTEMS:
            seconds = published.seconds[row, published.systems.index(system)]
            assert 2 ** reference.log_times[number, reference.systems.index(system)] == pytest.approx(seconds)


def test_the_answer_for_a_familiar_run_is_an_order_of_four_systems() -> None:
    answer = predict(profile_of(0), added={})
    assert set(answer.order) == set(FOUR_SYSTEMS)
    assert not answer.abstains
    assert list(answer.order) == sorted(answer.vector, key=lambda name: answer.vector[name])
    said = answer.as_json()
    assert said["order"] == list(answer.order)
    assert set(said) == {"run", "target", "abstains", "vector", "order", "sigma", "distance", "familiarity",
                         "measured", "warnings"}  # fmt: skip


def test_targets_say_the_same_in_other_terms() -> None:
    run = profile_of(12)
    centred, slowest, named = (
        predict(run, target=target, added={}) for target in ("centred", "slowest", "gtx1080")
    )
    assert max(slowest.vector.values()) == 1
    assert named.vector["gtx1080"] == 1
    assert centred.order == slowest.order == named.order
    difference = centred.vector["i7-6700k"] - centred.vector["gtx1080"]
    assert named.vector["i7-6700k"] == pytest.approx(2**difference)
    with pytest.raises(UnknownName, match="No target called 'fastest'"):
        predict(run, target="fastest", added={})


def test_an_unfamiliar_run_gets_no_answer_and_is_told_to_be_measured() -> None:
    known = profile_of(0)
    far = replace(known, counters={name: value * 1e6 for name, value in known.counters.items()})
    answer = predict(far, added={})
    assert answer.abstains
    said = answer.as_json()
    assert said["vector"] is None
    assert said["order"] is None
    assert "unfamiliar" in answer.warnings[0]
    assert "Measure it" in answer.warnings[0]


def test_a_known_time_helps_on_most_runs() -> None:
    reference = shipped().reference
    at = [reference.systems.index(name) for name in FOUR_SYSTEMS]
    better = []
    for run in range(0, 100, 9):
        truth = reference.log_times[run, at] - reference.log_times[run, at].mean()
        errors = []
        for profile in (profile_of(run), profile_of(run, "gtx1080")):
            vector = predict(profile, added={}).vector
            said = np.array([vector[name] for name in FOUR_SYSTEMS])
            errors.append(float(np.abs(said - said.mean() - truth).mean()))
        better.append(errors[1] < errors[0])
    assert np.mean(better) > 0.6
    assert predict(profile_of(0, "gtx1080"), added={}).measured == ("gtx1080",)


def test_an_added_system_stands_among_the_others() -> None:
    added = {"twin": twin_of("gtx1080", 20, 0.25)}
    answer = predict(profile_of(40), added=added)
    assert set(answer.order) == {*FOUR_SYSTEMS, "twin"}
    gap = answer.vector["gtx1080"] - answer.vector["twin"]
    assert gap == pytest.approx(2, abs=0.3)  # four times as fast
    assert answer.sigma["twin"] >= min(answer.sigma[name] for name in FOUR_SYSTEMS)
    # One known system beside it: the sigma is that system's own, whatever its place in the model.
    only = predict(profile_of(40), systems=("gtx1080", "twin"), added=added)
    model = shipped()
    row, _ = model.row_of(profile_of(40).counters)
    own = model.vector(row).sigma[model.reference.systems.index("gtx1080")]
    assert only.sigma["gtx1080"] == pytest.approx(own)


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"No system called 'gtx1090'. Did you mean 'gtx1080"):
        predict(profile_of(0), systems=("gtx1090", "knl"), added={})
    for wrong in (("knl",), ("knl", "knl")):
        with pytest.raises(InvalidSetting, match="two systems at least, each once"):
            predict(profile_of(0), systems=wrong, added={})
    with pytest.raises(InvalidSetting, match="must be positive, not 0"):
        Profile("run", {}, {"knl": 0.0})
    with pytest.raises(InvalidSetting, match="The profile has no total_instruction_count"):
        predict(Profile("empty", {}), added={})


def test_profiles_are_read_from_json_and_from_tables(tmp_path) -> None:
    path = tmp_path / "run.json"
    path.write_text(
        json.dumps([{"counters": {"opcode": 3, "workitems": None}}, {"name": "b", "counters": {}}])
    )
    first, second = read_profiles(path)
    assert (first.name, first.counters) == ("run-0", {"opcode": 3, "workitems": None})
    assert second.name == "b"
    rows = [Row("r", "p", "k", "1", "", 0, name, 2.0, "aiwc", "exact") for name in AIWC[:3]]
    rows += [
        Row("r", "p", "k", "1", "knl", repeat, "seconds", 1.0 + repeat, "clock", "exact") for repeat in (0, 1)
    ]
    CounterTable.of(rows).write(tmp_path / "run.parquet")
    (profile,) = read_profiles(tmp_path / "run.parquet")
    assert profile == Profile("r", dict.fromkeys(AIWC[:3], 2.0), {"knl": 1.5})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[1]", 'an object with "counters" in it'),
        ('{"counters": {"opcode": "many"}}', "must be numbers"),
    ],
)
def test_a_file_that_is_no_profile_is_named(tmp_path, text: str, words: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(MalformedInput, match=words):
        read_profiles(tmp_path / "run.json")
    with pytest.raises(UnreadableFile):
        read_profiles(tmp_path / "absent.json")


def test_a_runs_counters_choose_the_model_of_kernels_or_of_commands() -> None:
    commands = relative_model("relative-programs").reference
    counted = dict(zip(commands.counters, commands.values[0].tolist(), strict=True))
    command = Profile("command", {**counted, "page_faults": 12.0})
    assert shipped_for(command).name == "relative-programs-network"
    assert shipped_for(profile_of(0)) is shipped()
    answer = predict(command)
    assert set(answer.vector) == set(commands.systems)
    assert not answer.abstains
    # Systems that were added by runs of kernels say nothing of commands.
    assert predict(command, systems=("xeon-1", "h200-100")).order[0] in ("xeon-1", "h200-100")
