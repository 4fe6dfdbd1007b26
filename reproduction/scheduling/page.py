"""The pages about scheduling, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apportion.report.tabular import markdown_table
from reproduction.scheduling.study import mean_and_half_width

_PARITY = ["trace", "policy", "makespan, s", "reference", "", "mean completion, s", "reference", ""]
MADE = "`python -m reproduction scheduling`"


def pages(found: Mapping[str, Any]) -> dict[str, str]:
    """File name → page."""
    return {
        "scheduling-reference.md": reference_page(found),
        "scheduling-policies.md": policies_page(found),
    }


def reference_page(found: Mapping[str, Any]) -> str:
    """Our simulator beside Gavel's results."""
    parity = found["parity"]
    exact = [row for row in parity["rounds"] if row["exact"]]
    worst = max(
        abs(row[key] - row[f"given_{key}"][0]) if row[f"given_{key}"][0] == row[f"given_{key}"][1] else 0.0
        for row in exact
        for key in ("makespan_s", "avg_jct_s")
    )
    solved = [row for row in parity["rounds"] if not row["exact"]]
    rows, outside = [], []
    for row in solved:
        cells = []
        for key in ("makespan_s", "avg_jct_s"):
            least, most = row[f"given_{key}"]
            value = row[key]
            word = (
                "inside"
                if 0.97 * least <= value <= 1.03 * most
                else "better"
                if value < least
                else "**above**"
            )
            if word == "**above**":
                outside.append(f"`{row['policy']}` on `{row['trace']}`")
            cells += [f"{value:,.0f}", f"{least:,.0f} – {most:,.0f}", word]
        rows.append([row["trace"], f"`{row['policy']}`", *cells])
    slower = [
        row["given_cpu_s"] / row["cpu_s"] for row in parity["rounds"] if row["exact"] and row["cpu_s"] > 0.001
    ]
    said = ", ".join(dict.fromkeys(outside)) or "none"
    return f"""# Scheduling: our simulator beside Gavel's

Made by {MADE} on {found["made"]} from Gavel's traces, throughputs and results (Narayanan et al., OSDI 2020;
MIT
licence, not part of this repository).

- **Without preemption** (`eft`, `fastest`, `round_robin`, `easy_fastest`): {parity["plain"]} results;
  makespan, mean and 95th percentile of completion and mean wait are at most {parity["plain_worst_s"]:.4f} s
  apart: the rounding of the file.
- **Linear programs**: {parity["optima"]} optima, at most {parity["optima_worst"]:.1e} apart, relatively.
- **Rounds without a solver** (`fifo_fixed`, `fifo_perf`, `isolated`, `allox`): {len(exact)} results; those
  of one seed are at most {worst:.4f} s apart. `fifo` is not imitated: the source draws a type and does not
  use the draw; the name serves `fifo_fixed`.
- **Rounds with a solver**: {len(solved)} results. Optima are not unique, so the reference states a spread
  over solvers and seeds, which is widened here by 3 %. Above it: {said}.

Policies that know no speeds (`max_min_fairness`, `min_total_duration`, `finish_time_fairness`) take all
systems for
equal, and need no solver here: of the many optima we take the one that spreads each job over the systems as
their slots
are. CPU time of whole simulations without a solver, as the reference recorded its own on another machine,
over ours:
{min(slower):,.0f} to {max(slower):,.0f} times.

{markdown_table(_PARITY, rows)}
"""


def policies_page(found: Mapping[str, Any]) -> str:
    """Policies, what errors of predictions cost them, jobs drawn from measured runs, and speed."""
    return "\n".join([
        "# Scheduling policies, and what wrong predictions cost",
        "",
        f"Made by {MADE} on {found['made']}. Errors are drawn for each class of jobs on each system:",
        f"2^e with e normal of the sigma given; {found['seeds']} draws, mean and 95 % interval of the mean.",
        "The settings of `careful` are its defaults; that a quantile of 0.4 or 0.6, ties or exploring are no",
        "better was seen on these traces, so what is said of it is said of traces that were looked at.",
        "",
        "## With true times",
        "",
        "Makespan and mean completion, thousands of seconds. *Gavel* is the best of its policies that",
        "know the true speeds,",
        "in preemptive rounds, another for each of the two numbers; the others run each job to its end.",
        "",
        _truth(found["uncertainty"]),
        "",
        "`makespan` over the bound of the linear program, static traces: "
        + ", ".join(f"{row['trace']} {row['true']['makespan'][0] / row['bound_s']:.3f}"
                    for row in found["uncertainty"] if row["kind"] == "static") + ".",
        "",
        "## With predicted times",
        "",
        "Over the same policy with true times (its oracle): makespan; mean completion.",
        "",
        _errors(found["uncertainty"]),
        "",
        _goals(found["uncertainty"]),
        "",
        "## Jobs drawn from measured runs",
        "",
        _measured(found["measured"]),
        "",
        "## Speed",
        "",
        _speed(found["speed"]),
        "",
    ])  # fmt: skip


def _truth(rows: Sequence[Mapping[str, Any]]) -> str:
    names = ("round_robin", "fastest", "eft", "careful", "careful_short", "makespan")
    table = []
    for row in rows:
        cells = [f"{row['true'][name][0] / 1000:,.1f}; {row['true'][name][1] / 1000:,.1f}" for name in names]
        gavel = row.get("gavel")
        best = "–"
        if gavel:
            best = "; ".join(f"{min(one[at] for one in gavel.values()) / 1000:,.1f}" for at in (0, 1))
        table.append([row["trace"], *cells, best])
    return markdown_table(["trace", *(f"`{name}`" for name in names), "Gavel, best"], table)


def _errors(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = [
        f"{policy} {sigma}" for sigma in ("0.5", "1", "2") for policy in ("eft", "careful", "careful_short")
    ]
    table = []
    for row in rows:
        cells = []
        for column in columns:
            (span, off), (mean, wide) = row["wrong"][column]
            cells.append(f"{span:.2f} ± {off:.2f}; {mean:.2f} ± {wide:.2f}")
        table.append([row["trace"], *cells])
    return markdown_table(["trace", *(f"`{name.split()[0]}` σ {name.split()[1]}" for name in columns)], table)


def _goals(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for sigma, goal in (("0.5", 1.05), ("1", 1.15)):
        for at, what in ((1, "mean completion"), (0, "makespan")):
            missed = [
                f"{row['trace']} ({row['wrong'][f'careful {sigma}'][at][0]:.3f})"
                for row in rows
                if row["wrong"][f"careful {sigma}"][at][0] > goal
            ]
            held = len(rows) - len(missed)
            lines.append(
                f"- `careful` at σ {sigma}, {what} within {goal} of its oracle: {held} of {len(rows)} traces"
                + (f"; not on {', '.join(missed)}." if missed else ".")
            )
    worse = [
        row["trace"]
        for row in rows
        if any(row["true"]["careful"][at] > row["true"]["eft"][at] * (1 + 1e-6) for at in (0, 1))
    ]
    lines.append(f"- `careful` worse than `eft`, both given the truth: {', '.join(worse) or 'on no trace'}.")
    return "\n".join(lines)


def _measured(found: Mapping[str, Any]) -> str:
    sigma = ", ".join(
        f"{name} {value:.2f}" for name, value in zip(found["systems"], found["sigma"], strict=True)
    )
    text = [
        f"{found['jobs']:,} jobs, drawn with replacement from {found['runs']} runs of",
        f"{found['applications']} applications",
        f"measured on {', '.join(found['systems'])}; 50 slots each; a job is 10,000 launches of a kernel.",
        "`careful` learns as jobs finish. Every run is",
        "predicted by a model that never saw its application, from counters and one time on",
        f"{found['anchor']}. The",
        f"error has these sigmas (log2): {sigma}. The fastest system is named for",
        f"{found['fastest_named']:.0%} of the",
        f"runs, and the one named takes {found['regret']:.2f} of the best time in the mean.",
        "`user_rr`: who can use a GPU",
        "takes the GPUs in turn. Mean and 95 % interval over draws.",
        "",
    ]
    for setting, policies in found["found"].items():
        rows = []
        for name, draws in policies.items():
            cells = []
            for at, digits in ((0, 0), (1, 2), (2, 0), (3, 2)):
                values = [draw[at] for draw in draws]
                mean, half = mean_and_half_width(values)
                cells.append(f"{mean:,.{digits}f} ± {half:,.{digits}f}")
            rows.append([f"`{name}`", *cells])
        head = [
            "policy",
            "makespan, s",
            "bounded slowdown against the fastest",
            "mean completion, s",
            "makespan / bound",
        ]
        text += [f"### {setting.capitalize()}", "", markdown_table(head, rows), ""]
    return "\n".join(text)


def _speed(rows: Sequence[Mapping[str, Any]]) -> str:
    table = [
        [f"`{row['policy']}`", f"{row['jobs']:,}", f"{row['systems']} × {row['slots']:,}",
         f"1 to {row['widest']}",
         f"{row['jobs_per_s']:,.0f}", f"{row['bytes'] / 2**30:.2f}"]
        for row in rows
    ]  # fmt: skip
    return "Load 0.85, true times, one core shared with other work.\n\n" + markdown_table(
        [
            "policy",
            "jobs",
            "systems × slots",
            "width",
            "jobs per second of CPU",
            "memory of the process, GiB",
        ],
        table,
    )
