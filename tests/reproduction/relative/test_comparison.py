"""Predictors of relative performance compared: tables, splits without leaks, rules, choices, pages, new systems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from apportion.data.counter_table import AIWC, GRAPH, CounterTable, Row, System
from apportion.data.published.aiwc import with_graphs
from apportion.errors import InvalidSetting, MalformedInput, UnknownName
from apportion.learn.relative.performance import measures_of, vector_of
from apportion.learn.relative.relative_shipping import model_of, trust_of
from apportion.learn.relative.relative_table import RelativeTable, table_of
from apportion.settings import load
from reproduction.relative.comparison import (
    CEILINGS,
    PROTOCOLS,
    RULES,
    Comparison,
    Entry,
    against,
    best_pair,
    choice_called,
    predict,
    r_squared_as_said,
    run,
    scores,
    splits,
    truth_for,
)
from reproduction.relative.few_runs import few_samples
from reproduction.relative.page import Set, page, published_beside
from reproduction.relative.stacked_rows import LAYOUTS, stacked_scores

ROWS = (
    Entry("always", "constant"),
    Entry("ridge", "ridge", "shape", settings={"strength": 10.0}, candidate="counters"),
    Entry("weak", "ridge", "counters", settings={"strength": 1e6}, candidate="counters"),
    Entry("timed", "ridge", "shape", timed=True, settings={"strength": 10.0}, candidate="timed"),
    Entry("timed, weak", "ridge", "shape", timed=True, settings={"strength": 1e5}, candidate="timed"),
    Entry("both", "blend", of=("timed", "timed, weak"), candidate="timed"),
    Entry("two", "ridge", "shape", timed=True, twice=True, settings={"strength": 10.0}, candidate="twice"),
    Entry("… weaker", "ridge", "shape", timed=True, settings={"strength": 1e4}),
)


@pytest.fixture(scope="module")
def table(timed_runs) -> RelativeTable:
    return table_of(timed_runs, name="made up", counters=AIWC)


@pytest.fixture(scope="module")
def comparison(table: RelativeTable) -> Comparison:
    return Comparison(table.systems, "new-gpu", ROWS, "slow-cpu", repetitions=2, whole="timed")


@pytest.fixture(scope="module")
def answers(comparison: Comparison, table: RelativeTable, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "relative.jsonl"
    return run(comparison, table, path, report=lambda words: None)


def answer(answers, row: str, protocol: str):
    return next(one for one in answers if (one.row, one.protocol) == (row, protocol))


def test_a_table_holds_complete_runs_with_medians_halves_and_single_times(timed_runs) -> None:
    extra = Row("app9/k/small", "app9", "k", "small", "slow-cpu", 0, "seconds", 1.0, "clock", "exact")
    source = timed_runs.joined(CounterTable.of([extra]))
    table = table_of(source, name="made up", counters=AIWC)
    assert (len(table.runs), table.left_out) == (24, 1)
    assert table.kinds == ("cpu", "cpu", "gpu", "gpu")
    assert table.kernel[0] == "app0/k0"
    times = sorted(
        row["value"]
        for row in source.about(counters=["seconds"], systems=["old-gpu"]).frame.iter_rows(named=True)
        if row["run"] == table.runs[3]
    )
    assert 2 ** table.log_times[3, 2] == pytest.approx((times[1] + times[2]) / 2)
    assert not np.array_equal(table.halves[0], table.halves[1])
    assert table.repeated
    with pytest.raises(UnknownName, match="No system called 'gpu'"):
        table_of(source, name="x", counters=AIWC, systems=["gpu"])
    with pytest.raises(InvalidSetting, match="No run of x has the counters asked for"):
        table_of(
            timed_runs.joined(CounterTable.of([extra])).about(systems=["", "nowhere"]),
            name="x",
            counters=AIWC,
        )


def test_a_counter_from_two_sources_is_no_column_to_learn_from(timed_runs) -> None:
    extra = Row("app0/k0/small", "app0", "k0", "small", "", 0, "workitems", 1.0, "callgrind", "simulated")
    with pytest.raises(InvalidSetting, match=r"workitems comes from several sources \(aiwc, callgrind\)"):
        table_of(timed_runs.joined(CounterTable.of([extra])), name="x", counters=AIWC)


def test_program_graphs_join_where_they_are_known_of_every_run(timed_runs, table, comparison) -> None:
    first = timed_runs.frame.unique("run", maintain_order=True)
    rows = [
        Row(*identity, "", 0, f"{GRAPH}{name}", value, "program-graph", "static")
        for identity in first.select("run", "program", "kernel", "size").iter_rows()
        for name, value in (("nodes", 7.0), ("blocks", 2.0))
    ]
    known = table_of(timed_runs.joined(CounterTable.of(rows)), name="x", counters=AIWC)
    assert known.graph is not None
    assert known.graph[0].tolist() == [2, 7]  # in the order of their names
    assert known.features("graph").shape[1] == known.features("both").shape[1] + 2
    assert known.on(known.systems[:2]).graph is known.graph
    assert known.digest != table.digest
    fewer = table_of(timed_runs.joined(CounterTable.of(rows[:-1])), name="x", counters=AIWC)
    assert fewer.graph is None
    with pytest.raises(InvalidSetting, match="The program graphs of x are not known"):
        fewer.features("graph")
    more = replace(comparison, rows=(*ROWS, Entry("graphs", "ridge", "graph")))
    assert more.about(known).rows == more.rows
    assert more.about(fewer).rows == ROWS


def test_descriptions_join_where_every_system_says_the_same_things(timed_runs, comparison, tmp_path) -> None:
    pytest.importorskip("sklearn")
    systems = {
        name: replace(system, description={"name": name, "cores": 2.0**number, "gflops": 100.0})
        for number, (name, system) in enumerate(timed_runs.systems.items())
    }
    table = table_of(CounterTable(timed_runs.frame, systems), name="x", counters=AIWC)
    assert table.descriptions is not None
    gpu = [float(kind == "gpu") for kind in table.kinds]
    assert table.descriptions[:, 0].tolist() == gpu
    assert table.descriptions[:, 1].tolist() == [
        np.log2(systems[name].description["cores"]) for name in table.systems
    ]
    two = table.on(table.systems[:2])
    assert two.descriptions is not None
    assert two.descriptions.tolist() == table.descriptions[:2].tolist()
    fewer = {**systems, table.systems[0]: System(table.systems[0], "cpu")}
    unknown = table_of(CounterTable(timed_runs.frame, fewer), name="x", counters=AIWC)
    assert unknown.descriptions is None
    assert unknown.digest != table.digest == table.digest_of(graph=False, descriptions=True)
    assert unknown.digest == table.digest_of(graph=False, descriptions=False)
    row = Entry("pairs", "extra-trees", "both", timed=True, described=True, settings={"trees": 20},
                candidate="informed")  # fmt: skip
    more = replace(comparison, rows=(*ROWS, row))
    assert more.about(unknown).rows == ROWS
    assert more.about(table).rows == more.rows
    # Who learns from pairs knows one system from others, too: it beats what is true of all runs alike.
    few = replace(more, rows=(*ROWS[:2], ROWS[3], row), repetitions=1)
    found = run(few, table, tmp_path / "r.jsonl", report=lambda words: None)
    regret = {
        one.row: measures_of(table.log_times, one.said[0])["regret"]
        for one in found
        if one.protocol == "random"
    }
    assert regret["pairs"] < regret["always"]
    chosen = answer(found, choice_called("informed"), "application").chosen
    assert set(chosen) <= {"timed", "pairs"}
    text, _ = page(
        {"aiwc": Set("Made up", few, table, found, stacked_scores(table, parts=3))}, "x", samples=5
    )
    assert "descriptions of all 4 systems (to learn from pairs of a run and a system) were given to 1" in text
    assert "chosen by validation, one time and what else is known" in text
    with pytest.raises(InvalidSetting, match="The systems of x are not described"):
        predict(row, unknown, unknown, ["new-gpu"], np.arange(12), np.arange(12, 24), 1)
    with pytest.raises(InvalidSetting, match="says centred times"):
        Entry("x", "extra-trees", target="slowest", described=True)


def test_graphs_of_a_file_join_the_runs_of_their_kernels(timed_runs, tmp_path) -> None:
    path = tmp_path / "graphs.csv"
    kernels = timed_runs.frame.select(pl.col("program").alias("application"), "kernel").unique(
        maintain_order=True
    )
    kernels.with_columns(pl.lit(3.5).alias("nodes")).write_csv(path)
    known = table_of(with_graphs(timed_runs, path), name="x", counters=AIWC)
    assert known.graph is not None
    assert set(known.graph[:, 0]) == {3.5}
    kernels[1:].with_columns(pl.lit(3.5).alias("nodes")).write_csv(path)
    assert table_of(with_graphs(timed_runs, path), name="x", counters=AIWC).graph is None
    path.write_text("kernel,nodes\nk0,1\n")
    with pytest.raises(MalformedInput, match="the column 'application' is missing"):
        with_graphs(timed_runs, path)


def test_times_that_were_taken_once_have_no_noise_to_show(timed_runs, table, comparison, tmp_path) -> None:
    once = table_of(
        CounterTable(timed_runs.frame.filter(pl.col("repeat") == 0), timed_runs.systems),
        name="once", counters=AIWC,
    )  # fmt: skip
    assert not once.repeated
    found = run(
        replace(comparison, rows=ROWS[:1], whole=""), once, tmp_path / "r.jsonl", report=lambda _: None
    )
    assert {one.row for one in found} == {"always", *RULES}
    assert once.digest != table.digest


def test_fewer_systems_are_columns_of_the_same_table(table: RelativeTable) -> None:
    two = table.on(("new-gpu", "slow-cpu"))
    np.testing.assert_array_equal(two.log_times, table.log_times[:, [3, 0]])
    assert two.kinds == ("gpu", "cpu")
    assert two.digest != table.digest
    assert two.on(two.systems).digest == two.digest
    with pytest.raises(UnknownName, match="No system called 'tpu'"):
        table.on(("tpu", "slow-cpu"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_folds_cover_every_run_once_and_leak_nothing(table: RelativeTable, protocol: str) -> None:
    folds = splits(protocol, table, 3)
    assert sorted(np.concatenate([test for _, test in folds]).tolist()) == list(range(24))
    group = {"random": table.runs, "kernel": table.kernel, "application": table.application}[protocol]
    for train, test in folds:
        assert not {group[i] for i in train} & {group[i] for i in test}
        assert len(train) + len(test) == 24
    assert len(folds) == {"random": 5, "kernel": 8, "application": 6}[protocol]


def test_many_applications_are_held_out_in_groups(table: RelativeTable) -> None:
    many = replace(table, application=tuple(f"app{i}" for i in range(24)))
    assert len(splits("application", many, 1)) == 12
    with pytest.raises(InvalidSetting, match="One group of runs cannot be split"):
        splits("application", replace(table, application=("a",) * 24), 1)
    with pytest.raises(UnknownName, match="No split called 'suite'"):
        splits("suite", table, 1)


def test_a_prediction_never_sees_the_times_of_its_test(table: RelativeTable) -> None:
    train, test = splits("application", table, 1)[0]
    changed = table.log_times.copy()
    changed[test] = changed[test][:, ::-1] + 3
    other = replace(table, log_times=changed)
    for row in (ROWS[1], ROWS[0]):
        said, again = (predict(row, each, each, (), train, test, 1) for each in (table, other))
        np.testing.assert_array_equal(said, again)
    # One time known: the profiled system's, and no other.
    changed = table.log_times.copy()
    changed[np.ix_(test, [0, 1, 2])] += 5
    other = replace(table, log_times=changed)
    said, again = (predict(ROWS[3], each, each, ("new-gpu",), train, test, 1) for each in (table, other))
    np.testing.assert_array_equal(said, again)


def test_two_known_times_are_right_beside_each_other(table: RelativeTable) -> None:
    train, test = splits("application", table, 1)[0]
    row = Entry("two", "ridge", "shape", timed=True, twice=True)
    said = predict(row, table, table, ("new-gpu", "slow-cpu"), train, test, 1)
    truth = table.log_times[test]
    np.testing.assert_allclose(said[:, 3] - said[:, 0], truth[:, 3] - truth[:, 0])
    changed = table.log_times.copy()
    changed[np.ix_(test, [1, 2])] += 5
    other = replace(table, log_times=changed)
    np.testing.assert_array_equal(predict(row, other, other, ("new-gpu", "slow-cpu"), train, test, 1), said)
    with pytest.raises(InvalidSetting, match="need a second system beside the profiled one"):
        Comparison(table.systems, "new-gpu", (row,))
    with pytest.raises(InvalidSetting, match="who knows a second time knows the first"):
        Entry("two", "ridge", twice=True)


def test_every_row_rule_and_ceiling_answers_under_every_split(answers, table, comparison) -> None:
    names = {
        *(row.name for row in ROWS),
        *RULES,
        *CEILINGS,
        choice_called("counters"),
        choice_called("timed"),
        choice_called("twice"),
    }
    assert {(one.row, one.protocol) for one in answers} == {(n, p) for n in names for p in PROTOCOLS}
    assert len(answer(answers, "ridge", "random").said) == 2
    assert len(answer(answers, "ridge", "kernel").said) == 1

    def regret(row: str, protocol: str = "application") -> float:
        return scores(answer(answers, row, protocol), table, samples=20)["regret"].value

    assert regret(CEILINGS[0]) < 1.02
    assert regret("timed") < regret("always")
    assert regret("ridge") < regret("always")
    assert regret("ridge", "random") <= regret("ridge") * 1.05


def test_the_ceiling_is_measured_against_the_other_half(table: RelativeTable) -> None:
    np.testing.assert_array_equal(truth_for(CEILINGS[0], table), table.halves[0])
    np.testing.assert_array_equal(truth_for("ridge", table), table.log_times)


def test_validation_inside_the_training_runs_chooses_not_the_test(answers) -> None:
    chosen = answer(answers, choice_called("counters"), "application").chosen
    assert set(chosen) <= {"ridge", "weak"}
    assert chosen.count("ridge") > chosen.count("weak")
    blend = answer(answers, "both", "kernel").said[0]
    parts = [answer(answers, name, "kernel").said[0] for name in ("timed", "timed, weak")]
    centred = [part - part.mean(axis=1, keepdims=True) for part in parts]
    np.testing.assert_allclose(blend, np.mean(centred, axis=0), atol=1e-3)


def test_what_is_finished_is_not_run_again(comparison, table, tmp_path, monkeypatch) -> None:
    few = replace(comparison, rows=ROWS[:2], whole="")
    path = tmp_path / "relative.jsonl"
    first = run(few, table, path, report=lambda words: None)
    lines = path.read_text().splitlines()
    assert len(lines) == 2 * (2 * 5 + 8 + 6)
    path.write_text("\n".join([*lines[:-1], lines[-1][:30]]))  # the last line is cut off by a kill

    said = []
    real = predict
    monkeypatch.setattr(
        "reproduction.relative.comparison.predict", lambda *words: said.append(1) or real(*words)
    )
    again = run(few, table, path, report=lambda words: None)
    assert len(said) == 1 + 5  # that fold, and the folds inside it
    for one, other in zip(first, again, strict=True):
        np.testing.assert_allclose(one.said[0], other.said[0], atol=1e-3)


def test_two_rules_take_what_they_know_from_training_runs() -> None:
    times = np.array([[0.0, 5, 9, 9], [5, 0, 9, 9], [0, 5, 9, 9], [9, 9, 9, 0]])
    assert best_pair(times[:3]) == (0, 1)
    assert best_pair(times) in {(0, 1), (0, 3)}


def test_differences_are_paired(answers, table) -> None:
    itself = answer(answers, "timed", "application")
    nothing = against(itself, itself, table, samples=20)
    assert (nothing["r2"].low, nothing["r2"].high, nothing["regret"].value) == (0, 0, 1)
    found = against(answer(answers, "always", "application"), itself, table, samples=20)
    assert found["regret"].value > 1
    alone = [measures_of(table.log_times, answer(answers, row, "application").said[0])["regret"]
             for row in ("always", "timed")]  # fmt: skip
    assert found["regret"].value == pytest.approx(alone[0] / alone[1])


def test_the_seeds_layout_of_rows_leaks_labels(table: RelativeTable) -> None:
    pytest.importorskip("sklearn")
    found = stacked_scores(table, parts=3)
    assert tuple(found) == LAYOUTS
    assert found[LAYOUTS[0]]["r2"] > found[LAYOUTS[2]]["r2"]


def test_a_forest_is_scored_as_scikit_learn_scores_it_and_rescaled(table: RelativeTable, tmp_path) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    forest = Entry("forest", "random-forest", target="slowest", settings={"trees": 10})
    few = Comparison(table.systems, "new-gpu", (ROWS[0], forest), repetitions=1, whole="always")
    found = run(few, table, tmp_path / "r.jsonl", report=lambda words: None)
    itself = answer(found, "forest", "application")
    truth, vectors = vector_of(table.log_times, "slowest"), 2.0 ** itself.said[0]
    as_said = r_squared_as_said(itself, table, samples=5).value
    assert as_said == pytest.approx(metrics.r2_score(truth, vectors), abs=1e-3)
    assert vectors.max(axis=1).min() < 0.999
    assert as_said != pytest.approx(scores(itself, table, samples=5)["r2"].value, abs=1e-3)
    one = Set("Made up", few, table, found, stacked_scores(table, parts=3))
    measures = {(each.row, each.protocol): scores(each, table, samples=5) for each in found}
    assert any(
        "| … scored as the forest says it | 0.68 | " in line for line in published_beside(one, measures, 5)
    )


def test_new_systems_are_known_better_from_more_runs(table: RelativeTable) -> None:
    found = few_samples(table, draws=2, samples=(3, 10), report=lambda words: None)
    r2 = {(one.method, one.samples): one.r2.value for one in found}
    assert r2["mixture of systems", 10] > r2["scale only", 10]
    assert r2["mixture of systems", 10] > r2["mixture of systems", 3]
    held = [one.held for one in found if one.method == "mixture of systems"]
    assert all(0.3 < each <= 1 for each in held)
    with pytest.raises(InvalidSetting, match="two others are needed"):
        few_samples(table.on(table.systems[:2]), report=lambda words: None)


def test_the_shipped_model_is_chosen_and_its_sigmas_are_checked(table: RelativeTable) -> None:
    model = model_of(table, systems=table.systems, profiled="new-gpu")
    assert model.features in ("counters", "shape", "both")
    assert model.about is not None
    assert model.about["data"] == table.digest
    trust = trust_of(model, systems=table.systems, profiled="new-gpu", unfamiliar=0.05)
    assert 0.4 < trust.held <= 1
    assert 0 <= trust.abstained < 0.5
    assert trust.near_regret >= 1


def test_the_page_shows_every_row_its_targets_and_four_figures(answers, comparison, table) -> None:
    pytest.importorskip("sklearn")
    few = few_samples(table, draws=1, samples=(5, 20, 50), report=lambda words: None)
    model = model_of(table, systems=table.systems, profiled="new-gpu")
    trust = trust_of(model, systems=table.systems, profiled="new-gpu", unfamiliar=0.05)
    one = Set("Made up", comparison, table, answers, stacked_scores(table, parts=3), few, trust)
    text, figures = page(
        {"aiwc": one, "own": replace(one, few=(), trust=None)}, "relative-performance", samples=10
    )
    assert set(figures) == {f"{short}-figure-{n}.svg" for short in ("aiwc", "own") for n in (2, 3, 4, 5)}
    for name in figures:
        assert f"(relative-performance/{name})" in text
    for words in ("Against the targets", "What validation chose", "New systems from few", "… weaker",
                  "Not comparable", table.digest[:16], "noise"):  # fmt: skip
        assert words in text, words
    for line in text.splitlines():
        assert "nan" not in line.split()
    header = next(line for line in text.splitlines() if line.startswith("| predictor"))
    assert header.count("|") == 5
    tables = [line for line in text.splitlines() if line.startswith("| ridge |")]
    assert len(tables) == 2 * 6  # six measures of two sets


def test_settings_are_checked_and_the_published_experiment_loads(table) -> None:
    experiment = load(Comparison, Path(__file__).parents[3] / "experiments/relative-performance.toml")
    assert experiment.whole in {row.name for row in experiment.rows}
    assert not [row for row in experiment.without_stages().rows if row.name.startswith("…")]
    assert "network" not in {row.learner for row in experiment.without_networks().rows}
    with pytest.raises(UnknownName, match="No system called 'tpu'"):
        Comparison(("a", "b"), "tpu", ())
    with pytest.raises(InvalidSetting, match="a name of its own"):
        Comparison(("a", "b"), "a", (ROWS[0], ROWS[0]))
    with pytest.raises(UnknownName, match="No set of features called 'all'"):
        Entry("x", "ridge", "all")
    with pytest.raises(InvalidSetting, match="a blend, and nothing else"):
        Entry("x", "ridge", of=("y",))
