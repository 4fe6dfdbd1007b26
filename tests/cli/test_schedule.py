"""`apportion schedule simulate`: its JSON, its files, and one line for what is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import polars as pl
import pytest

from apportion.cli import main

FIELDS = [
    "policy",
    "jobs",
    "completed",
    "killed",
    "makespan_s",
    "avg_jct_s",
    "p50_jct_s",
    "p95_jct_s",
    "avg_wait_s",
    "avg_bounded_slowdown",
    "avg_bounded_slowdown_fastest",
    "utilisation",
    "useful_work",
    "fairness_jain",
    "lp_bound_s",
    "fallback",
    "placement_regret",
    "policy_cpu_s",
    "simulator_cpu_s",
]
MORE = {
    "jobs_per_cpu_s", "p99_jct_s", "avg_jct_s_95", "p50_wait_s", "p95_wait_s", "p99_wait_s",
    "p50_bounded_slowdown", "p50_bounded_slowdown_fastest", "avg_bounded_slowdown_fastest_95", "lp_ratio",
    "utilisation_by_system", "fairness_least", "fairness_jain_users", "lost_slot_s", "head_delay_s",
    "explored", "restarted", "repeat",
}  # fmt: skip
TRACE = "job,arrival_s,class,width,seconds:a,seconds:b\nx,0,p,1,10,20\ny,0,p,2,10,\nz,3,q,1,5,5\n"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return str(path)


def said(capsys, *words):
    with pytest.raises(SystemExit) as left:
        main(["schedule", *words])
    assert left.value.code == 0
    return capsys.readouterr()


def test_each_policy_is_one_line_of_json_with_these_fields(trace, capsys):
    out = said(
        capsys,
        "simulate",
        "--trace",
        trace,
        "--systems",
        "a=2",
        "b=1",
        "--policy",
        "eft",
        "fastest",
        "--json",
    ).out
    lines = [json.loads(line) for line in out.splitlines()]
    assert [list(line)[: len(FIELDS)] for line in lines] == [FIELDS, FIELDS]
    assert all(set(line) == {*FIELDS, *MORE} for line in lines)
    assert [line["policy"] for line in lines] == ["eft", "fastest"]
    assert lines[0]["makespan_s"] == 20
    assert lines[0]["jobs"] == lines[0]["completed"] == 3


def test_what_is_said_to_repeat_a_run_repeats_it(capsys):
    words = ("simulate", "--format", "synthetic", "--jobs", "200", "--systems", "a=5:cpu", "b=3", "--sigma", "0.7",
             "--policy", "careful", "--seed", "3", "--load", "0.9", "--quantile", "0.6", "--json")  # fmt: skip
    first = json.loads(said(capsys, *words).out)
    asked = first["repeat"]
    assert asked["systems"] == ["a=5:cpu", "b=3"]
    settings, drawn = asked["settings"], asked["drawn"]
    again = ("simulate", "--format", asked["format"], "--jobs", str(drawn["jobs"]), "--load", str(drawn["load"]),
             "--largest-width", str(drawn["largest_width"]), "--systems", *asked["systems"], "--sigma",
             str(asked["sigma"]), "--execution", asked["execution"], "--trim", str(asked["trim"]), "--policy",
             first["policy"], "--seed", str(settings["seed"]), "--quantile", str(settings["quantile"]), "--json")  # fmt: skip
    second = json.loads(said(capsys, *again).out)
    assert {k: v for k, v in second.items() if "cpu" not in k} == {
        k: v for k, v in first.items() if "cpu" not in k
    }


def test_rounds_run_jobs_that_have_times_and_no_steps(trace, capsys):
    words = ("--trace", trace, "--systems", "a=2", "b=1", "--execution", "rounds", "--json", "--policy")
    (line,) = said(capsys, "simulate", *words, "max_min_fairness_perf").out.splitlines()
    assert json.loads(line)["completed"] == 3


def test_the_table_the_rows_and_the_report_are_written(trace, tmp_path, capsys):
    rows, report = tmp_path / "rows.parquet", tmp_path / "report.html"
    found = said(capsys, "simulate", "--trace", trace, "--systems", "a=2", "b=1", "--policy", "eft", "sjf",
                 "--jobs-out", str(rows), "--report", str(report))  # fmt: skip
    assert "eft" in found.out
    table = pl.read_parquet(rows)
    assert table.height == 6
    assert table.columns[:6] == ["policy", "job", "class", "system", "width", "arrival_s"]
    assert (table["end_s"] - table["start_s"] - table["ran_s"]).abs().max() < 1e-9
    page = report.read_text()
    assert page.count("<svg") == 3 + 2 * 2
    assert not re.search(r'(?:src|href)="', page)


def test_an_error_of_a_sigma_costs_and_the_oracle_does_not_pay_it(capsys):
    words = (
        "--format",
        "synthetic",
        "--systems",
        "a=8",
        "b=8",
        "c=8",
        "--jobs",
        "3000",
        "--sigma",
        "1.5",
        "--json",
    )
    out = said(capsys, "simulate", *words, "--policy", "eft", "oracle_eft").out
    wrong, oracle = (json.loads(line) for line in out.splitlines())
    assert wrong["avg_jct_s"] > 1.1 * oracle["avg_jct_s"]
    assert wrong["placement_regret"] > oracle["placement_regret"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--trim", "0.7"), "trim is a part of the jobs at each end, from 0 to less than 0.5, not 0.7"),
        (("--policy", "eftt"), "No policy for execution run-to-end called 'eftt'. Did you mean 'eft'?"),
        (("--policy", "eft", "--execution", "rounds"), "No policy for execution rounds called 'eft'."),
        (("--execution", "round"), "No execution called 'round'. Did you mean 'rounds'?"),
        (("--sigma", "-1"), "sigma is 0 or more, not -1.0"),
        (("--sigma", "1", "--predictions", "true"), "Give --predictions or --sigma, not both"),
        (
            ("--policy", "user"),
            "The trace does not say which system the user chose (column system). Use user_rr",
        ),
        (("--policy", "allox"), "allox knows jobs of one slot only, and this trace has wider ones"),
        (("--backfill", "some"), "No backfilling called 'some'."),
        (("--explore", "0.5"), "explore lies between 0 and 0.01, not 0.5"),
        (("--default-system", "z"), "No system called 'z'. There are: a, b."),
        (("--format", "gavel"), "Gavel's traces need the table of speeds: name it with --throughputs"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(trace, capsys, words, message):
    with pytest.raises(SystemExit) as left:
        main(["schedule", "simulate", "--trace", trace, "--systems", "a=2", "b=1", *words])
    assert left.value.code == 1
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_policies_are_listed_with_what_they_do(capsys):
    lines = [json.loads(line) for line in said(capsys, "policies", "--json").out.splitlines()]
    listed = {line["policy"]: line for line in lines}
    assert listed["careful"]["execution"] == "run-to-end"
    assert listed["finish_time_fairness"]["execution"] == "rounds"
    assert all(line["summary"] for line in listed.values())


ALL = (
    ("run-to-end", "round_robin random fastest easy_fastest eft eft_late sjf careful careful_short max_min "
     "sum_throughput makespan allox"),
    ("rounds", "fifo_fixed max_min_fairness max_min_fairness_perf min_total_duration_perf "
     "max_sum_throughput_perf finish_time_fairness finish_time_fairness_perf allox srpt"),
)  # fmt: skip


@pytest.mark.parametrize(("execution", "names"), ALL)
def test_results_are_equal_to_the_last_bit_whatever_the_seed_of_hashes(tmp_path, execution, names):
    def run(hash_seed):
        rows = tmp_path / f"{hash_seed}.csv"
        words = [
            "schedule",
            "simulate",
            "--format",
            "synthetic",
            "--jobs",
            "80",
            "--systems",
            "b=3",
            "a=5",
            "c=2",
        ]
        words += [
            "--execution",
            execution,
            "--sigma",
            "0.7",
            "--seed",
            "5",
            "--json",
            "--jobs-out",
            str(rows),
        ]
        program = "import sys; from apportion.cli import main; main(sys.argv[1:])"
        done = subprocess.run([sys.executable, "-c", program, *words, "--policy", *names.split()], text=True, check=True,
                              capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed})  # fmt: skip
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [line["policy"] for line in lines] == names.split()
        return [{k: v for k, v in line.items() if "cpu" not in k} for line in lines], rows.read_bytes()

    assert run("0") == run("4711")
