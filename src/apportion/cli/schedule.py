"""`apportion schedule`: which job runs where and when, simulated and in real schedulers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from apportion.cli.show import note, print_json, print_table, progress
from apportion.errors import InvalidSetting
from apportion.schedule.beliefs import Beliefs, exact, of_file, of_table, with_errors
from apportion.schedule.policies import policies
from apportion.schedule.problem import ScheduleSettings
from apportion.schedule.quality import ScheduleSummary
from apportion.schedule.readers import readers
from apportion.schedule.readers.trace_source import TraceRequest
from apportion.schedule.simulate import RUN_TO_END, SimulatedPolicy, write_jobs
from apportion.schedule.simulate import simulate as simulate_policies
from apportion.schedule.trace import JobTrace, parse_systems
from apportion.settings import replace_file

schedule = App(name="schedule", help="Decide which job runs on which system, in simulation and on clusters.")

schedule.command("apportion.cli.schedule_slurm:slurm", name="slurm",
                 help="Place Slurm jobs by what their class takes in each partition.")  # fmt: skip

schedule.command("apportion.cli.schedule_export:export", name="export",
                 help="Write predictions in the form that SkyPilot, Kueue or Flux takes.")  # fmt: skip

Words = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
Flag = Annotated[bool, Parameter(negative="")]
TRUE, OF_TRACE = "true", "trace"
SHOWN = ("makespan_s", "avg_jct_s", "p95_jct_s", "avg_wait_s", "avg_bounded_slowdown_fastest", "utilisation",
         "fairness_jain", "placement_regret")  # fmt: skip


@schedule.command
def simulate(
    *,
    trace: Path | None = None,
    format: str = "table",
    systems: Words = None,
    policy: Words = None,
    throughputs: Path | None = None,
    times: Path | None = None,
    predictions: str | None = None,
    anchor: str | None = None,
    sigma: float | None = None,
    execution: str = RUN_TO_END,
    seed: int = 0,
    jobs: int = 1000,
    load: float = 0.85,
    cycles: Flag = False,
    largest_width: int = 1,
    backfill: str | None = None,
    depth: int | None = None,
    reserve: str = "predicted",
    requeue: Flag = False,
    no_learning: Flag = False,
    quantile: float = 0.5,
    tie: float = 0.0,
    explore: float = 0.0,
    default_system: str | None = None,
    drop_short_steps: Flag = False,
    jobs_out: Path | None = None,
    trace_out: Path | None = None,
    report: Path | None = None,
    json: Flag = False,
) -> None:
    """Run the same jobs under several policies, and say how each did.

    Args:
        trace: the file of jobs.
        format: of the trace: table (ours: CSV or Parquet), gavel, swf, sacct, measured or synthetic.
        systems: NAME=SLOTS or NAME=SLOTS:KIND, or files with the columns system and slots.
        policy: one or several; `oracle_` before a name gives that policy the true times. By default eft.
        throughputs: gavel: the table of steps per second.
        times: swf, sacct, measured: a table with class and seconds:NAME for each system.
        predictions: what policies know: true (the default), trace (its own columns predicted:NAME), or a
            file of predictions by job or class (CSV, Parquet, or the lines of `apportion relative predict
            --json`).
        anchor: the system where a run of each class was measured; it makes seconds of relative performance.
        sigma: instead of --predictions: true times with an error of this sigma (log2) by class and system.
        execution: run-to-end, or rounds (preemptive slices of 360 s, with the policies that Gavel has).
        seed: of everything that is drawn.
        jobs: measured, synthetic: how many to draw.
        load: measured, synthetic: offered work over what the slots can do; 0 has all jobs arrive at once.
        cycles: measured, synthetic: busier by day and on weekdays.
        largest_width: measured, synthetic: jobs need 1 to this many slots.
        backfill: none, easy or conservative, in place of the policy's own.
        depth: how many waiting jobs are looked at when one could start; 0 looks at all.
        reserve: whether reservations trust predicted times (predicted) or the users' limits (limit).
        requeue: a job killed at its limit comes back with twice the limit.
        no_learning: careful does not learn from finished jobs.
        quantile: careful decides by this quantile of predicted times.
        tie: careful takes systems for equal whose finish is nearer than this many sigmas.
        explore: careful may lose this part of all slot time (up to 0.01) to learning: it tries a class on
            other systems, and starts a first run again elsewhere that takes twice as long as it would there.
        default_system: for jobs whose prediction is not worth using and whose user chose none.
        drop_short_steps: rounds: imitate that Gavel gives up jobs with fewer steps left than GPUs.
        jobs_out: write a row for each job and policy (Parquet, or CSV by the name).
        trace_out: write the jobs in our own table form.
        report: write one HTML file with Gantt charts, queues, use of the systems and completion curves.
        json: print one JSON object for each policy, one a line.
    """
    request = TraceRequest(
        parse_systems(systems) if systems else (),
        trace,
        throughputs,
        times,
        seed,
        jobs,
        load,
        cycles,
        largest_width,
    )
    read: JobTrace = readers.load(format)(request)
    for said in read.notes:
        note(f"{trace or format}: {said}")
    if trace_out is not None:
        read.write(trace_out)
    settings = ScheduleSettings(
        seed=seed, backfill=backfill, depth=depth, reserve=reserve, requeue=requeue, learn=not no_learning,
        quantile=quantile, tie=tie, explore=explore, default=default_system,
        drop_short_steps=drop_short_steps,
    )  # fmt: skip
    beliefs = _beliefs(read, predictions, anchor, sigma, seed)
    names = policy or ["eft"]
    results: list[SimulatedPolicy] = []
    found = simulate_policies(read, names, beliefs=beliefs, settings=settings, execution=execution)
    for result in progress(found, label="Policies", total=len(names), quiet=json):
        for said in result.schedule.notes:
            note(f"{result.summary.policy}: {said}")
        if result.summary.lp_bound_s is None and not results:
            note("lp_bound_s needs SciPy: pip install 'apportion[schedule]'")
        if jobs_out is not None or report is not None or not json:
            results.append(result)
        if json:
            print_json(result.summary)
    if not json:
        _print([result.summary for result in results], len(read))
    if jobs_out is not None:
        write_jobs(read, results, jobs_out)
        note(f"The jobs are in {jobs_out}")
    if report is not None:
        from apportion.schedule.report import page_of  # drawing is not needed otherwise

        replace_file(report, page_of(read, results))
        note(f"The report is in {report}")


@schedule.command(name="policies")
def list_policies(*, json: Flag = False) -> None:
    """List the policies for jobs that run to their end, and those of rounds.

    Args:
        json: print one JSON object for each, one a line.
    """
    from apportion.schedule.rounds import ROUND_POLICIES  # it needs SciPy

    rows = [(name, RUN_TO_END, _first_line(policies.load(name))) for name in policies]
    rows += [(name, "rounds", _first_line(kind)) for name, kind in ROUND_POLICIES.items()]
    if json:
        for name, execution, summary in rows:
            print_json({"policy": name, "execution": execution, "summary": summary})
    else:
        print_table(("policy", "execution", "summary"), rows)


def _first_line(thing: object) -> str:
    return " ".join((thing.__doc__ or "").split("\n\n")[0].split())


def _beliefs(
    trace: JobTrace, predictions: str | None, anchor: str | None, sigma: float | None, seed: int
) -> Beliefs:
    if sigma is not None:
        if predictions is not None:
            raise InvalidSetting("Give --predictions or --sigma, not both")
        return with_errors(trace, sigma, seed)
    if predictions in (None, TRUE):
        return exact(trace)
    if predictions == OF_TRACE:
        return of_table(trace)
    return of_file(trace, Path(predictions or ""), anchor=anchor)


def _print(summaries: list[ScheduleSummary], jobs: int) -> None:
    rows = [
        (
            one.policy,
            *(
                f"{getattr(one, name):,.4g}" if name[-2:] != "_s" else f"{getattr(one, name):,.0f}"
                for name in SHOWN
            ),
        )
        for one in summaries
    ]
    print_table(("policy", *SHOWN), rows, title=f"{jobs:,} jobs", right=SHOWN)
    bound = summaries[0].lp_bound_s
    if bound is not None:
        note(f"No schedule is shorter than {bound:,.0f} s. All numbers of each policy: --json")
