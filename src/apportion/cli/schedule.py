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
from apportion.schedule.repeat import repeated_run
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
    trim: float = 0.0,
    jobs_out: Path | None = None,
    trace_out: Path | None = None,
    report: Path | None = None,
    json: Flag = False,
) -> None:
    """Run the same jobs under several policies, and say how each did.

    Args:
        trace: The file of jobs.
        format: The format of that file: table (our own, CSV or Parquet), gavel, swf or sacct; measured and
            synthetic draw jobs instead.
        systems: The systems, as NAME=SLOTS or NAME=SLOTS:KIND, or files with the columns system and slots.
        policy: The policies to compare; eft by default. `oracle_` before a name tells that policy the true
            times.
        throughputs: For gavel: the table of steps per second.
        times: For swf, sacct and measured: a table with the columns class and seconds:NAME for each system.
        predictions: What policies know about the jobs: true times (true, the default), the trace's own
            columns predicted:NAME (trace), or a file of predictions by job or class (CSV, Parquet, or the
            lines of `apportion relative predict --json`).
        anchor: The system on which a run of each class was measured. It turns relative performance into
            seconds.
        sigma: Instead of --predictions: true times with a random error of this standard deviation (log2) for
            each class and system.
        execution: run-to-end, or rounds: slices of 360 s after which jobs may move, with Gavel's policies.
        seed: Seed of the random numbers.
        jobs: For measured and synthetic: how many jobs to draw.
        load: For measured and synthetic: the work that arrives, as a part of what the slots can do. With 0
            all jobs arrive at once.
        cycles: For measured and synthetic: more jobs arrive by day and on weekdays.
        largest_width: For measured and synthetic: a job needs 1 to this many slots.
        backfill: Let later jobs start in gaps: none, easy or conservative, instead of what the policy does.
        depth: How many waiting jobs to look at when one could start; 0 looks at all.
        reserve: Reserve slots by predicted times (predicted) or by the users' time limits (limit).
        requeue: Start a job again, with twice the limit, if its limit killed it.
        no_learning: The policy careful learns nothing from jobs that ended.
        quantile: The quantile of a predicted time that careful decides by.
        tie: careful counts systems as equal if their finish times differ by less than this many standard
            deviations.
        explore: The part of all slot time, up to 0.01, that careful may spend on learning: it tries a class
            on other systems, and starts a first run again elsewhere if it takes twice as long as it would
            there.
        default_system: Where jobs go whose prediction is too uncertain and whose user chose no system.
        drop_short_steps: For rounds: give up jobs with fewer steps left than GPUs, as Gavel does.
        trim: Leave this part of the jobs, of the first to arrive and again of the last, out of means,
            percentiles and fairness, such as 0.05; the rest is nearer to a steady state.
        jobs_out: Write a row for each job and policy to this file, Parquet or CSV by its name.
        trace_out: Write the jobs to this file, in our own table format.
        report: Write an HTML page with Gantt charts, queues, use of the systems and completion curves.
        json: Print one line of JSON for each policy.
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
    found = simulate_policies(read, names, beliefs=beliefs, settings=settings, execution=execution, trim=trim)
    asked = repeated_run(
        request, read.systems, format=format, settings=settings, predictions=predictions, anchor=anchor,
        sigma=sigma, execution=execution, trim=trim,
    )  # fmt: skip
    for result in progress(found, label="Policies", total=len(names), quiet=json):
        for said in result.schedule.notes:
            note(f"{result.summary.policy}: {said}")
        if result.summary.lp_bound_s is None and not results:
            note("lp_bound_s needs SciPy: pip install 'apportion[schedule]'")
        if jobs_out is not None or report is not None or not json:
            results.append(result)
        if json:
            print_json({**vars(result.summary), "repeat": asked})
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
        json: Print one line of JSON for each policy.
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
