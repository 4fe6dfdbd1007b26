"""The page about the service under load and abuse, from what its runs stored beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from apportion.report.tabular import markdown_table

STORED = Path("docs/results/service")
_COLUMNS = ("what is asked", "clients", "answers a second", "median", "90 %", "99 %", "longest", "errors")
_WORDS = {
    "known": "kernels that are known, as fast as it answers",
    "known, 300 a second": "the same, asked 300 times a second",
    "known, 400 a second": "the same, asked 400 times a second",
    "new, one client": "sources never seen, one after the other",
    "new, four clients": "sources never seen",
}
_FORGED = {
    "foreign host": "a foreign `Host`", "foreign origin": "a foreign origin",
    "null origin": "a `null` origin",
    "cross-site": "a request from a page of another site", "form": "a form instead of JSON",
    "no token": "no token, or a wrong one, for jobs", "too large": "two megabytes",
}  # fmt: skip


def page(stored: Path = STORED) -> str:
    """The page in Markdown."""
    load, before, busy, abuse = (
        json.loads((stored / f"{name}.json").read_text())
        for name in ("load", "load-before", "load-busy", "abuse")
    )
    kib = load["memory"]["kib"]
    words = Path(__file__).with_name("page.md.jinja").read_text()
    engine = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    beyond = load["beyond the limit"]["statuses"]
    return engine.from_string(words).render(
        known=_words(load["known"]), paced=_words(load["known, 300 a second"]),
        new=_words(load["new, one client"]),
        busy=_words(busy["known, 300 a second"]), idle_load=f"{load['load_average_before']:.1f}",
        before_load=f"{before['load_average_before']:.1f}", load_table=_table(load),
        before_table=_table({name: run for name, run in before.items() if name.startswith("known")}),
        beyond={"ok": f"{beyond['200']:,}", "refused": f"{beyond['429']:,}"},
        memory={
            "requests": f"{load['memory']['requests']:,}", "first": _megabytes(kib[0]),
            "after": _megabytes(kib[1]), "last": _megabytes(kib[-1]),
            "growth": f"{kib[-1] / kib[1] - 1:.1%}",
            "steps": ", ".join(f"{one / 1024:.1f}" for one in kib[1:]),
        },
        abuse=_abuse_words(abuse), abuse_table=_abuse_table(abuse),
    )  # fmt: skip


def _words(run: Mapping[str, Any]) -> dict[str, str]:
    return {
        "per_second": f"{run['per_second']:,.0f}", "median": _milliseconds(run["median_ms"]),
        "p99": _milliseconds(run["p99_ms"]), "processor": f"{run['processor_ms_each']:.2f} ms",
    }  # fmt: skip


def _table(found: Mapping[str, Any]) -> str:
    rows = [
        (
            words, str(run["clients"]), f"{run['per_second']:,.0f}", _milliseconds(run["median_ms"]),
            _milliseconds(run["p90_ms"]), _milliseconds(run["p99_ms"]), _milliseconds(run["most_ms"]),
            f"{run['requests'] - run['statuses'].get('200', 0)} of {run['requests']:,}",
        )
        for name, words in _WORDS.items()
        if (run := found.get(name)) is not None
    ]  # fmt: skip
    return markdown_table(_COLUMNS, rows, align="lrrrrrrr")


def _abuse_words(found: Mapping[str, Any]) -> dict[str, str]:
    made = found["schemathesis"]
    return {
        "requests": f"{found['malformed']['requests']:,}",
        "forms": str(found["malformed"]["addresses"]), "schemathesis": made["version"],
        "made": f"{made['requests']:,}", "addresses": str(made["addresses"]),
        "faults": str(len(made["faults"]) or "none"),
    }  # fmt: skip


def _abuse_table(found: Mapping[str, Any]) -> str:
    statuses = found["malformed"]["statuses"]
    right = f"{statuses['200']:,} that happened to be right" if "200" in statuses else ""
    refused = [f"{count:,} × {status}" for status, count in statuses.items() if status != "200"]
    rows = [
        (
            f"{found['malformed']['requests']:,} malformed bodies",
            ", ".join([*refused, *filter(None, [right])]),
        ),
        *((words, str(found["forged"][name])) for name, words in _FORGED.items()),
        *(
            (f"{count} ways out of the page's folder", status)
            for status, count in found["paths_out_of_the_page"].items()
        ),
        (
            "`GET /api/health` beside 200 clients that never finish",
            str(found["health_beside_200_slow_clients"]),
        ),
    ]
    return markdown_table(("what was sent", "answers"), rows)


def _milliseconds(value: float) -> str:
    return f"{value:.1f} ms" if value < 20 else f"{value:.0f} ms"


def _megabytes(kib: int) -> str:
    return f"{kib / 1024:.1f} MB"
