"""The page of the data-flow networks: Table 4.1 on our corpus, beyond 30 steps, and on other sources."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from apportion.learn.dataflow.evaluation import BUCKETS
from apportion.report.numbers import with_interval
from reproduction.dataflow.table import FinishedRun, TablePlan, TableRow
from reproduction.published import published


@dataclass(frozen=True)
class DataflowNumbers:
    """`published.toml`."""

    f1: Mapping[str, str]
    "Analysis → F1 of the original and of its port, on DDF-30."


PUBLISHED = published("dataflow", DataflowNumbers).f1
_STUDENT = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}
"Half-width of a 95 % interval of a mean, in standard errors, by the number of runs."

_LOOKED_AT = (1000, 2000, 3000, 4000, 6000, 8000, 10000)
"Updates whose validation the page shows."


def summaries(plan: TablePlan, ended: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """Per row with a finished run: mean F1, precision and recall over its seeds, and if it meets its goal.

    A row that learnt from some sources is scored on the others.
    """
    rows = []
    for row in plan.rows:
        mine = [one for one in ended if one.run.row == row]
        kind = "other_sources" if row.elsewhere else "test"
        scores = [one.result[kind] for one in mine if one.result[kind] is not None]
        if not scores:
            continue
        f1 = [score["f1"]["value"] for score in scores]
        goal = plan.goal_of(row, ended)
        rows.append(
            {
                "name": row.name,
                "learnt_from": list(row.sources),
                "runs": len(scores),
                "f1": fmean(f1),
                "interval": _interval(f1),
                "precision": fmean(score["precision"]["value"] for score in scores),
                "recall": fmean(score["recall"]["value"] for score in scores),
                "goal": goal,
                "met": goal is not None and fmean(f1) >= goal,
            }
        )
    return rows


def page(
    plan: TablePlan,
    ended: Sequence[FinishedRun],
    shipped: Sequence[Mapping[str, Any]] = (),
    remarks: str = "",
) -> str:
    """The page in Markdown.

    Args:
        shipped: what is known of each network that ships.
        remarks: Markdown that the page ends with.
    """
    inside = [row for row in plan.rows if not row.elsewhere]
    outside = [row for row in plan.rows if row.elsewhere]
    lines = [
        f"# {plan.title}",
        "",
        *_verdict(plan, ended),
        *_shipped_verdict(shipped),
        "",
        *_made(plan, ended),
        "",
        *_table(plan, inside, ended),
        "",
        *_about_liveness(inside, ended),
        "*All nodes* is what labelling every node would score; labelling none scores 0. The goal is held",
        "against the mean over seeds. The thesis' numbers are of another corpus (DDF-30): beside ours, not",
        "against them.",
    ]
    if shipped:
        lines += ["", "## The networks that ship", "", *_shipped(shipped)]
    lines += [
        "",
        "## Beyond the 30 steps that were trained on",
        "",
        "Test F1 by the steps that the exact answer takes, the mean over seeds:",
        "",
        *_by_steps([(row.name, _steps_of(row, ended)) for row in inside]),
    ]
    if shipped:
        lines += [
            "",
            "Of the networks that ship:",
            "",
            *_by_steps([(str(one["name"]), [one["by_steps"]]) for one in shipped]),
        ]
    if any(one.run.row.elsewhere for one in ended):
        lines += [
            "",
            "## On another source than trained on",
            "",
            "Each network below learnt from one source and was validated on it, then tested on that source's",
            "test files and on all others' (at most 30 steps).",
            "",
            *_elsewhere(outside, ended),
            "",
            "The same, source by source:",
            "",
            *_by_source(outside, ended),
        ]
    lines += [
        "",
        "## How they learnt",
        "",
        "Validation F1 after so many updates, and at the end:",
        "",
        *_curves(ended),
        "",
        *_cost(ended),
    ]
    return "\n".join([*lines, *(["", remarks.rstrip()] if remarks else []), ""])


def _verdict(plan: TablePlan, ended: Sequence[FinishedRun]) -> list[str]:
    held = [row for row in summaries(plan, ended) if row["goal"] is not None]
    if not held:
        return ["**No row is held to a goal here: rows stand beside one another.**"]
    missed = [f"{row['name']} ({row['f1']:.3f}, goal {row['goal']})" for row in held if not row["met"]]
    best = _best_rows(plan, ended)
    met = [row for row in held if row["met"] and row["name"] in best]
    lines = [
        f"**{len(met)} of {len(best)} analyses reach their goal by the row that validates best, in the mean"
        + (f": {'; '.join(_with_interval(row) for row in met)}" if met else "")
        + ".**"
    ]
    if missed:
        return [
            *lines,
            f"**Of all rows that were held to one, {len(held) - len(missed)} of {len(held)} goals are met; "
            f"missed: {'; '.join(missed)}.**",
        ]
    return [*lines, f"**All {len(held)} goals are met.**"]


def _best_rows(plan: TablePlan, ended: Sequence[FinishedRun]) -> set[str]:
    """Of each analysis the row whose runs validate best in the mean, among those held to a goal."""
    best: dict[str, tuple[float, str]] = {}
    for row in plan.rows:
        mine = [one for one in ended if one.run.row == row]
        if row.elsewhere or not mine or plan.goal_of(row, ended) is None:
            continue
        task, mean = str(mine[0].result["task"]), fmean(one.result["validation"] for one in mine)
        best[task] = max(best.get(task, (-1.0, "")), (mean, row.name))
    return {name for _, name in best.values()}


def _with_interval(row: Mapping[str, Any]) -> str:
    return f"{row['name']} {with_interval((row['f1'], *row['interval']), '.4f')}, goal {row['goal']}"


def _shipped_verdict(shipped: Sequence[Mapping[str, Any]]) -> list[str]:
    held = [(one, _fairest(one)["f1"]["value"]) for one in shipped if one["goal"] is not None]
    if not held:
        return []
    met = [f"{one['name']} ({f1:.4f})" for one, f1 in held if f1 >= one["goal"]]
    missed = [f"{one['name']} ({f1:.4f}, goal {one['goal']})" for one, f1 in held if f1 < one["goal"]]
    return [
        f"**Of the networks that ship {len(met)} of {len(held)} meet their goal"
        + (f": {'; '.join(met)}" if met else "")
        + (f"; not: {'; '.join(missed)}" if missed else "")
        + ".**"
    ]


def _fairest(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """A shipped network's scores on files that it cannot have seen, where these are known."""
    scores: Mapping[str, Any] = one["unseen"] or one["test"]
    return scores


def _shipped(shipped: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "Of each analysis the one with the best validation F1: the best run's, or the one that shipped",
        "before, which is replaced by a better one only (where it seems no worse but may have learnt from",
        "some graphs, those that it cannot have seen decide). One seed each. *Learnt from*: the fingerprint",
        "of its dataset. The split of a dataset depends on all of its files, so that a test file of this one",
        "may have been a training file of an earlier one. Where a network learnt from an earlier one, *test*",
        "and *validation F1* may flatter; *unseen* is on the test graphs of packages that the earlier one",
        "did not have, less those whose edges equal a graph's of the others, and is what its goal is held",
        "against. In parentheses: 95 % over test graphs. Chosen and tested by the command above with",
        "`--ship src/apportion/weights`.",
        "",
        "| task | labels | T | hidden | messages | seed | learnt from | validation F1 | test F1 | precision "
        "| recall | examples | unseen: F1 | precision | recall | examples (graphs) | goal |",
        "|---|---|---:|---:|---|---:|---|---:|---|---:|---:|---:|---|---:|---:|---:|---|",
    ]
    for one in shipped:
        settings, test, fair = one["settings"], one["test"], _fairest(one)
        goal = one["goal"]
        cells = (
            str(one["name"]),
            str(one["labels"]),
            str(settings["hyperparameters"].get("steps", 30)),
            str(settings["hyperparameters"].get("width", 32) + 2),
            _divided(settings["hyperparameters"]),
            str(settings["seed"]),
            f"`{one['learnt_from']}`",
            f"{one['validation']:.4f}",
            *_scored(test),
            f"{test['examples']:,}",
            *_scored(fair),
            f"{fair['examples']:,} ({fair['graphs']:,})",
            "" if goal is None else f"{goal} {'met' if fair['f1']['value'] >= goal else 'missed'}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _scored(scores: Mapping[str, Any]) -> tuple[str, str, str]:
    f1 = scores["f1"]
    return (
        f"**{with_interval(f1, '.4f')}**",
        f"{scores['precision']['value']:.4f}",
        f"{scores['recall']['value']:.4f}",
    )


def _made(plan: TablePlan, ended: Sequence[FinishedRun]) -> list[str]:
    prints = {one.run.row.labels: str(one.settings["data_fingerprint"]) for one in ended}
    device = sorted({str(one.result["hardware"]) for one in ended})
    dates = sorted({str(one.result["date"]) for one in ended})
    named = ", ".join(f"`{value}` with {labels} labels" for labels, value in sorted(prints.items()))
    largest, tested = (
        sorted({int(one.settings["settings"][name]) for one in ended})
        for name in ("training_nodes_limit", "nodes_limit")
    )
    return [
        f"Trained and tested on {', '.join(device)}, {' and '.join(dates)}, by",
        "",
        "```console",
        f"$ {plan.command}",
        "```",
        "",
        f"on {plan.corpus} (fingerprints {named}),",
        "split 3:1:1 by file with identical graphs kept once, so that no graph stands on both sides.",
        f"Trained on instances of at most 30 steps in graphs of at most {_limits(largest)} nodes, tested",
        f"on graphs of up to {_limits(tested)}. All runs of a task are tested on the same instances;",
        "scores are pooled over all their nodes. In parentheses: with several seeds the 95 % interval of",
        "their mean (Student's t), with one the 95 % interval over test graphs.",
        "",
        "*Labels*: `reference` are those of the published dataset (DDF), with its count of steps; `exact`",
        "are the textbook's, with true depth. *Messages*: what a node takes of its n messages. The thesis",
        "takes their mean; a mean over the thousand users of a constant all but erases the one that is",
        "marked, so ours are divided by less than n.",
    ]


def _limits(largest: Sequence[int]) -> str:
    return " or ".join(f"{limit:,}" for limit in largest)


def _table(plan: TablePlan, rows: Sequence[TableRow], ended: Sequence[FinishedRun]) -> list[str]:
    lines = [
        "| task | labels | T | hidden | messages | seeds | updates | validation F1 | test F1 | precision "
        "| recall | examples | all nodes | thesis F1 (original / port) | goal |",
        "|---|---|---:|---:|---|---:|---|---|---|---:|---:|---:|---:|---|---|",
    ]
    for row in rows:
        mine = [one for one in ended if one.run.row == row and one.result["test"] is not None]
        if not mine:
            continue
        tests = [one.result["test"] for one in mine]
        f1 = [test["f1"]["value"] for test in tests]
        each = "" if len(f1) == 1 else f" ({', '.join(f'{value:.4f}' for value in f1)})"
        low, high = _interval(f1) if len(f1) > 1 else (tests[0]["f1"]["low"], tests[0]["f1"]["high"])
        goal = plan.goal_of(row, ended)
        met = "" if goal is None else f"{goal} {'met' if fmean(f1) >= goal else 'missed'}"
        cells = (
            row.name,
            row.labels,
            str(_setting(mine[0], "steps", 30)),
            str(_setting(mine[0], "width", 32) + 2),
            _messages(mine[0]),
            str(len(mine)),
            ", ".join(f"{one.result['updates']:,}" for one in mine),
            ", ".join(f"{one.result['validation']:.4f}" for one in mine),
            f"**{with_interval((fmean(f1), low, high), '.4f')}**{each}",
            f"{fmean(test['precision']['value'] for test in tests):.4f}",
            f"{fmean(test['recall']['value'] for test in tests):.4f}",
            f"{min(test['examples'] for test in tests):,}",
            f"{fmean(one.result['all_nodes_f1'] for one in mine):.3f}",
            PUBLISHED[str(mine[0].result["task"])],
            met,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _about_liveness(rows: Sequence[TableRow], ended: Sequence[FinishedRun]) -> list[str]:
    """Why liveness stands there with two kinds of labels, when it does."""
    kinds = {one.run.row.labels for one in ended if one.run.row in rows and one.result["task"] == "liveness"}
    if len(kinds) < 2:
        return []
    return [
        "Liveness has two rows because the reference's count of steps is not what messages must travel: it",
        "counts over control *and data* edges and leaves out what was defined before the root, so that an",
        "instance of at most 30 steps can have labels far more than 30 control edges away, which no network",
        "with T = 30 can know. With the true depth it can.",
        "",
    ]


def _messages(one: FinishedRun) -> str:
    return _divided(one.settings["settings"]["hyperparameters"])


def _divided(hyperparameters: Mapping[str, Any]) -> str:
    dilution = float(hyperparameters.get("dilution", 1.0))
    return {1.0: "mean", 0.0: "sum"}.get(dilution, f"sum / n^{dilution:g}")


def _setting(one: FinishedRun, name: str, usual: Any) -> Any:
    """A hyper-parameter of a run; `usual` is what the network takes when none is given."""
    return one.settings["settings"]["hyperparameters"].get(name, usual)


def _steps_of(row: TableRow, ended: Sequence[FinishedRun]) -> list[Sequence[Mapping[str, Any]]]:
    return [one.result["by_steps"] for one in ended if one.run.row == row]


def _by_steps(named: Sequence[tuple[str, Sequence[Sequence[Mapping[str, Any]]]]]) -> list[str]:
    shown = BUCKETS[:-1]
    lines = [
        f"| task | {' | '.join(f'{first}–{last}' for first, last in shown)} |",
        f"|---|{'---:|' * len(shown)}",
    ]
    for name, mine in named:
        if not mine:
            continue
        cells = []
        for first, _last in shown:
            values = [
                bucket["f1"]["value"] for buckets in mine for bucket in buckets if bucket["first"] == first
            ]
            cells.append(f"{fmean(values):.3f}" if values else "–")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _curves(ended: Sequence[FinishedRun]) -> list[str]:
    lines = [
        f"| task | seed | {' | '.join(f'{updates:,}' for updates in _LOOKED_AT)} | end |",
        f"|---|---:|{'---:|' * (len(_LOOKED_AT) + 1)}",
    ]
    for one in sorted(ended, key=lambda one: (one.run.row.elsewhere, one.run.row.name, one.run.seed)):
        after = dict(one.curve)
        if not after:
            continue
        away = f", from {' and '.join(one.run.row.sources)}" if one.run.row.elsewhere else ""
        last = max(after)
        cells = (
            f"{one.run.row.name}{away}",
            str(one.run.seed),
            *(f"{after[updates]:.3f}" if updates in after else "" for updates in _LOOKED_AT),
            f"{after[last]:.3f} ({last:,})",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _elsewhere(rows: Sequence[TableRow], ended: Sequence[FinishedRun]) -> list[str]:
    lines = [
        "| task | learnt from | F1 there | examples | F1 elsewhere | examples |",
        "|---|---|---|---:|---|---:|",
    ]
    for row in rows:
        for one in (one for one in ended if one.run.row == row):
            there = [part for part in one.result["by_source"] if part["source"] in row.sources]
            away = one.result["other_sources"]
            if away is None or not there:
                continue
            f1, examples = away["f1"], sum(part["examples"] for part in there)
            cells = (
                row.name,
                ", ".join(row.sources),
                f"{_pooled(there):.4f}",
                f"{examples:,}",
                f"**{with_interval(f1, '.4f')}**",
                f"{away['examples']:,}",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _by_source(rows: Sequence[TableRow], ended: Sequence[FinishedRun]) -> list[str]:
    mine = [one for one in ended if one.run.row in rows]
    sources: dict[str, int] = {}
    for one in mine:
        for part in one.result["by_source"]:
            sources[part["source"]] = max(sources.get(part["source"], 0), int(part["graphs"]))
    shown = [name for name, graphs in sorted(sources.items(), key=lambda item: -item[1]) if graphs >= 10]
    lines = [
        f"| source (test graphs) | {' | '.join(one.run.row.name for one in mine)} |",
        f"|---|{'---:|' * len(mine)}",
    ]
    for name in shown:
        cells = []
        for one in mine:
            found = [part["f1"]["value"] for part in one.result["by_source"] if part["source"] == name]
            cells.append(f"{found[0]:.3f}" if found else "–")
        lines.append(f"| {name} ({sources[name]}) | {' | '.join(cells)} |")
    return lines


def _cost(ended: Sequence[FinishedRun]) -> list[str]:
    memory = [one.result["peak_memory_bytes"] / 1e9 for one in ended]
    seconds = [one.result["seconds"] for one in ended]
    return [
        f"A run held {min(memory):.1f}–{max(memory):.1f} GB of memory at its peak and took "
        f"{min(seconds):.0f}–{max(seconds):.0f} s of wall clock, test included; several shared the machine."
    ]


def _pooled(parts: Sequence[Mapping[str, Any]]) -> float:
    """F1 over several corpora together, from each one's precision, recall and nodes."""
    true = called = positive = 0.0
    for part in parts:
        counts = part["counts"]
        true += counts[0]
        called += counts[0] + counts[1]
        positive += counts[0] + counts[2]
    return 2 * true / max(called + positive, 1.0)


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean over seeds; the value itself when there is one."""
    middle = fmean(values)
    if len(values) < 2:
        return middle, middle
    half = _STUDENT.get(len(values), 2.0) * stdev(values) / math.sqrt(len(values))
    return max(0.0, middle - half), min(1.0, middle + half)
