"""The page about kernels of published packages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from apportion.report.numbers import with_interval
from reproduction.corpus_opencl.packages import Package
from reproduction.corpus_opencl.stages import ROUTES, KernelRow

_HOW = """Kernels to be run are drawn from those that can be shared, in turn from every package, and run half
and half on two instances of PoCL 3, over 4,096 work-items, with arguments that `apportion run`
deduces; results are compared with those of one instance. Both are the same compiler on the same
processor: what only another vendor's device would show is not seen here. Sources are trusted
(`--trust-source`), as whoever installs the package does: some have inline assembly for one vendor. A
launch that bounds checks stop before it runs counts as not run. A kernel whose first launch shows that
its work-groups write the same places is not shared: `apportion run` then takes one device, and the page
counts it apart. Predictions are those of the pair xeon-h200, which rests on arguments. Of a package with
very many files of one form some are drawn. The options of a package were looked up in its sources, or are
those of one call of each form; they were not written for the others that its host program makes."""


def page(rows: Sequence[KernelRow], known: Sequence[Package], remarks: str = "") -> str:
    """The page in Markdown.

    Args:
        remarks: what must be known of this run of the command.
    """
    files = {(row.package, row.file) for row in rows}
    kernels = [row for row in rows if row.kernel]
    parts = [
        "# Kernels of published packages",
        "",
        f"{len(kernels):,} kernels in {len(files):,} files of {len(known)} source packages of Debian and "
        f"PyPI, as they are published, and about {sum(row.unread for row in rows):,} kernels in files that "
        "compile on no route; nothing of them is kept here. "
        "Made by `python -m reproduction corpus-opencl`, which fetches them. "
        "What *as they are* means stands in [decision 9](../decisions/0009-what-compiles-as-it-is.md).",
        "",
        *_table(rows),
        *_looked_up(rows, known),
        _HOW,
        "",
        *([remarks.rstrip(), ""] if remarks else []),
        *_held_out(rows, known),
        "## Packages",
        "",
        "| package | version | files | as they are | with options | with guesses | kernels | shared | run |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
        *(_row_of(package, [row for row in rows if row.package == package.name]) for package in known),
        "",
        "## Why not",
        "",
    ]
    tried = [row for row in kernels if row.ran is not None]
    late = {
        (row.package, row.file): replace(row, kernel="", reason=row.not_given)
        for row in rows
        if row.route and row.not_given
    }
    for title, failed in (
        ("Files that compile only with options or guesses", list(late.values())),
        ("Files that compile on no route", [row for row in rows if not row.route]),
        ("Kernels without a prediction", [row for row in kernels if not row.predicted]),
        ("Kernels whose work is not shared", [r for r in kernels if r.predicted and not r.splittable]),
        ("Drawn kernels that turn out to share no work", [row for row in tried if row.found_unshareable]),
        (
            "Kernels that were drawn and did not run",
            [row for row in tried if not row.ran and not row.found_unshareable],
        ),
        ("Kernels that ran and differ", [row for row in tried if row.ran and row.equal is False]),
    ):
        parts += _reasons(title, failed) if failed else []
    return "\n".join(parts).rstrip() + "\n"


def _levels(rows: Sequence[KernelRow]) -> list[tuple[str, int, int, str]]:
    """What is counted, how many reach it, of how many, and what was aimed at."""
    routes = Counter({(row.package, row.file): row.route for row in rows}.values())
    files = sum(routes.values())
    kernels = [row for row in rows if row.kernel]
    predicted = [row for row in kernels if row.predicted]
    drawn = [row for row in kernels if row.ran is not None]
    tried = [row for row in drawn if not row.found_unshareable]
    ended = [row for row in tried if row.ran]
    given, own = routes[ROUTES[0]], routes[ROUTES[1]]
    by_kernel = Counter(row.route for row in kernels)
    every = len(kernels) + sum(row.unread for row in rows)
    first, second = by_kernel[ROUTES[0]], by_kernel[ROUTES[0]] + by_kernel[ROUTES[1]]
    return [
        ("kernels that compile as they are", first, every, "70 %"),
        ("kernels that compile so, or with their package's options", second, every, "95 %"),
        ("kernels that compile so, or with guesses (`--guess`)", len(kernels), every, ""),
        ("files that compile as they are", given, files, ""),
        ("files that compile so, or with their package's options", given + own, files, ""),
        ("files that compile so, or with guesses (`--guess`)", files - routes[""], files, ""),
        ("kernels that get a graph", sum(row.graph for row in kernels), len(kernels), ""),
        ("kernels that get a prediction", len(predicted), len(kernels), ""),
        ("predictions that leave no assumed number unsaid", sum(not row.unsaid for row in predicted),
         len(predicted), "100 %"),
        ("kernels whose work can be shared", sum(row.splittable for row in kernels), len(kernels), ""),
        ("drawn kernels that turn out at their first launch to share no work", len(drawn) - len(tried),
         len(drawn), ""),
        ("the other drawn kernels that run with deduced arguments", len(ended), len(tried), "90 %"),
        ("of those, with equal results on two devices", sum(row.equal is True for row in ended), len(ended),
         "100 %"),
    ]  # fmt: skip


def _table(rows: Sequence[KernelRow]) -> list[str]:
    return [
        "| what | reached | share (95 % interval) | aimed at |",
        "|---|---:|---:|---:|",
        *(
            f"| {name} | {part:,} of {whole:,} | {_share(part, whole)} | {aim} |"
            for name, part, whole, aim in _levels(rows)
        ),
        "",
    ]


def _held_out(rows: Sequence[KernelRow], known: Sequence[Package]) -> list[str]:
    """The levels of packages that nobody looked into while the product was built."""
    names = [package.name for package in known if package.held_out]
    mine = [row for row in rows if row.package in names]
    if not mine:
        return []
    return [
        "## Packages that nobody had looked into",
        "",
        f"{', '.join(names)} were chosen by their names, before anybody looked into them, and were given no "
        "options. They count in the table above, too.",
        "",
        *_table(mine),
    ]


def _looked_up(rows: Sequence[KernelRow], known: Sequence[Package]) -> list[str]:
    """The share with options, of packages whose options were looked up."""
    held_out = {package.name for package in known if package.held_out}
    if not held_out:
        return []
    levels = _levels([row for row in rows if row.package not in held_out])
    _, part, whole, _ = next(level for level in levels if "package's options" in level[0])
    return [
        f"Packages that are held out were given no options. Of the others, {part:,} of {whole:,} kernels "
        f"({_share(part, whole)}) compile as they are or with their package's options.",
        "",
    ]


def _row_of(package: Package, mine: Sequence[KernelRow]) -> str:
    taken = Counter({row.file: row.route for row in mine}.values())
    tried = [row for row in mine if row.ran is not None]
    counts = (
        len({row.file for row in mine}), *(taken[route] for route in ROUTES),
        sum(bool(row.kernel) for row in mine), sum(row.splittable for row in mine),
    )  # fmt: skip
    cells = " | ".join(f"{count:,}" for count in counts)
    run = f"{sum(bool(row.ran) for row in tried)} of {len(tried)}"
    return f"| {package.name} ({package.origin}) | {package.version} | {cells} | {run} |"


def _reasons(title: str, failed: Sequence[KernelRow]) -> list[str]:
    """Every class of failure, with how many are in it and one of them."""
    lines = [f"{title} ({len(failed):,}):", "", "| class | number | an example |", "|---|---:|---|"]
    for name, count in Counter(row.failure or "something else" for row in failed).most_common():
        example = next(row for row in failed if (row.failure or "something else") == name)
        lines.append(f"| {name} | {count:,} | {_example(example)} |")
    return [*lines, ""]


def _share(part: int, whole: int) -> str:
    """A share with Wilson's interval."""
    if not whole:
        return ""
    z, p = 1.96, part / whole
    middle = (p + z * z / (2 * whole)) / (1 + z * z / whole)
    half = z * math.sqrt(p * (1 - p) / whole + z * z / (4 * whole * whole)) / (1 + z * z / whole)
    return with_interval((p, middle - half, middle + half), ".1%")


def _example(row: KernelRow) -> str:
    # Names of folders of this machine say nothing to a reader.
    reason = row.reason.split("/tree/")[-1][:140].replace("|", "\\|").replace("`", "'")
    kernel = f" `{row.kernel}`" if row.kernel else ""
    return f"`{row.package}/{row.file.rsplit('/', 1)[-1]}`{kernel}: {reason}"
