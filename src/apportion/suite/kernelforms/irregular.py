"""Forms whose ways and places data decides, and those that work on what they make up themselves."""

from __future__ import annotations

from apportion.suite.expressions import DOUBLE, FLOAT, INT, UINT, Draw, constant, statements
from apportion.suite.kernelforms.base import Draft, array_of, beginning, indented, two_sizes


def divergent(draw: Draw) -> Draft:
    """Work-items that go different ways, or round a loop a different number of times, as their data says."""
    kind = draw.one((FLOAT, FLOAT, DOUBLE, INT, UINT))
    most = draw.one((8, 32, 128, 512))
    way = draw.one(("turns", "turns", "branches", "until", "early"))
    special = draw.one((0.0, 0.2, 0.5)) if kind.is_float else 0.0
    one = statements(draw, kind, ["s"], draw.scale(1, 8), special)
    if way == "turns":
        lines = [
            f"int turns = g[i] & {most - 1};",
            "for (int k = 0; k < turns; k++) {",
            *("    " + t for t in one),
            "}",
        ]
        work = float(most * len(one))
    elif way == "branches":
        count = draw.one((2, 3, 4, 8))
        lines = [f"switch (g[i] & {count - 1 if count & (count - 1) == 0 else 3}) {{"]
        for number in range(count):
            branch = statements(draw, kind, ["s"], draw.scale(1, 24), special)
            lines += [f"case {number}:", *("    " + t for t in branch), "    break;"]
        lines += ["default:", "    x = y;", "}"]
        work = 24.0 * count
    elif way == "until":
        lines = [
            "uint state = (uint)g[i] + 1u;",
            f"for (int k = 0; k < {most} && (state & 31u) != 0u; k++) {{",
            "    state = state * 1664525u + 1013904223u;",
            "    state ^= state >> 13;",
            *("    " + t for t in one),
            "}",
        ]
        work = 32.0 * len(one)
    else:
        lines = [
            f"if ((g[i] & 15) < {draw.between(1, 14)}) {{ out[i] = s; return; }}",
            f"for (int k = 0; k < {most}; k++) {{",
            *("    " + t for t in one),
            "}",
        ]
        work = float(most * len(one))
    body = indented(
        [
            "int i = get_global_id(0);",
            f"const {kind.name} s = a[i];",
            *beginning(kind, "s", constant(draw, kind)),
            *lines,
            "out[i] = x + y;",
        ]
    )
    return Draft(
        "divergent",
        body,
        (f"global const {kind.name} *a", "global const int *g", f"global {kind.name} *out"),
        {
            "a": array_of(kind, "N", "random"),
            "g": f"int32[N]=below:{max(most, 16)}",
            "out": array_of(kind, "N", "zeros"),
        },
        two_sizes(draw),
        2.0 * work,
        2 * kind.bytes + 4,
        {"type": kind.name, "special": special, "access": "straight", "dimensions": 1, "divergence": 1.0},
    )


def sparse(draw: Draw) -> Draft:
    """Each work-item over a list of places that data gives: sparse rows, neighbours in a graph."""
    kind = draw.one((FLOAT, FLOAT, DOUBLE, INT))
    most = draw.one((4, 8, 16, 32))
    uneven = draw.chance(0.6)
    count = f"1 + (lengths[i] & {most - 1})" if uneven else str(most)
    by_row = draw.chance(0.6)
    place = f"i * {most} + k" if by_row else "k * n + i"
    inner = draw.one(
        ("s += w[{p}] * v[columns[{p}]];", "s = {m}(s, v[columns[{p}]]);", "s += v[columns[{p}]];")
    )
    deep = draw.chance(0.3)
    text = inner.format(p=place, m="fmax" if kind.is_float else "max")
    if deep:
        text = text.replace(f"v[columns[{place}]]", f"v[columns[(uint)columns[{place}] % (uint)n]]")
    body = indented(
        [
            "int i = get_global_id(0);",
            f"{kind.name} s = 0;",
            f"int count = {count};",
            "for (int k = 0; k < count; k++) " + text,
            "out[i] = s;",
        ]
    )
    return Draft(
        "sparse rows",
        body,
        (
            "global const int *lengths",
            "global const int *columns",
            f"global const {kind.name} *w",
            f"global const {kind.name} *v",
            f"global {kind.name} *out",
            "int n",
        ),
        {
            "lengths": f"int32[N]=below:{most}",
            "columns": f"int32[{most}*N]=below:N",
            "w": array_of(kind, f"{most}*N", "random"),
            "v": array_of(kind, "N", "random"),
            "out": array_of(kind, "N", "zeros"),
            "n": "int32:N",
        },
        two_sizes(draw),
        4.0 * most,
        4 + most * (4 + kind.bytes) + 2 * kind.bytes,
        {"type": kind.name, "access": "gathered", "dimensions": 1, "divergence": float(uneven)},
    )


def made_up(draw: Draw) -> Draft:
    """Numbers made from the work-item's own id, without any input: random walks, fractals, tests of
    points."""
    turns = draw.scale(8, 512)
    way = draw.one(("walk", "escape", "points", "hash"))
    float_kind = draw.one((FLOAT, DOUBLE))
    f = "f" if float_kind is FLOAT else ""
    kind = UINT if way in ("points", "hash", "walk") else INT
    if way == "escape":
        lines = [
            f"{float_kind.name} a = (i & 1023) * 0.0025{f} - 1.8{f}, "
            f"b = ((i >> 10) & 1023) * 0.002{f} - 1{f}, p = 0, q = 0;",
            "int r = 0;",
            f"for (; r < {turns} && p * p + q * q < 4; r++) {{",
            f"    {float_kind.name} next = p * p - q * q + a;",
            "    q = 2 * p * q + b;",
            "    p = next;",
            "}",
        ]
    else:
        inner = {
            "walk": ["r += (state >> 16) & 3u;"],
            "points": [
                "uint u = state >> 17;",
                "state = state * 1664525u + 1013904223u;",
                "uint v = state >> 17;",
                "r += u * u + v * v < (1u << 30);",
            ],
            "hash": statements(draw, UINT, [], draw.scale(2, 10), 0.0, ("r", "state")),
        }[way]
        lines = [
            "uint state = (uint)i * 2654435761u + 12345u, r = 1u;",
            f"for (int k = 0; k < {turns}; k++) {{",
            "    state = state * 1664525u + 1013904223u;",
            *("    " + line for line in inner),
            "}",
        ]
    atomic = way == "points" and draw.chance(0.5)
    lines.append("atomic_add(out, r);" if atomic else "out[i] = r;")
    return Draft(
        "made up",
        indented(["int i = get_global_id(0);", *lines]),
        (f"global {kind.name} *out",),
        {"out": array_of(kind, "1" if atomic else "N", "zeros")},
        two_sizes(draw),
        6.0 * turns,
        0.0 if atomic else 4.0,
        {
            "type": float_kind.name if way == "escape" else kind.name,
            "access": "none",
            "dimensions": 1,
            "divergence": float(way == "escape"),
            "atomics": float(atomic),
        },
    )


def private(draw: Draw) -> Draft:
    """A small array of each work-item: sorted, evaluated as a polynomial, or filtered."""
    kind = draw.one((FLOAT, FLOAT, DOUBLE, INT))
    count = draw.one((4, 8, 9, 16, 24))
    way = draw.one(("sort", "polynomial", "recurrence", "median"))
    low, high = ("fmin", "fmax") if kind.is_float else ("min", "max")
    if way in ("sort", "median"):
        lines = [
            f"for (int p = 0; p < {count}; p++)",
            f"    for (int q = p & 1; q + 1 < {count}; q += 2) {{",
            f"        {kind.name} first = {low}(t[q], t[q + 1]), second = {high}(t[q], t[q + 1]);",
            "        t[q] = first; t[q + 1] = second;",
            "    }",
            f"{kind.name} s = t[{count // 2}] - t[0];" if way == "median" else f"{kind.name} s = 0;",
            *([] if way == "median" else [f"for (int q = 0; q < {count}; q++) s += t[q] * (q + 1);"]),
        ]
        work = 2.0 * count * count
    elif way == "polynomial":
        repeats = draw.scale(1, 32)
        lines = [
            f"{kind.name} s = 1, z = t[0];",
            f"for (int r = 0; r < {repeats}; r++)",
            f"    for (int q = 0; q < {count}; q++) s = s * z{' * ' + constant(draw, kind)} + t[q];",
        ]
        work = 3.0 * count * repeats
    else:
        lines = [
            f"for (int r = 0; r < {draw.scale(2, 32)}; r++)",
            f"    for (int q = 1; q < {count}; q++) t[q] = t[q] * {constant(draw, kind)} + t[q - 1];"
            if not kind.is_float
            else f"    for (int q = 1; q < {count}; q++) "
            f"t[q] = (t[q] + t[q - 1]) * 0.49{'' if kind is DOUBLE else 'f'};",
            f"{kind.name} s = t[{count - 1}];",
        ]
        work = 24.0 * count
    by_row = draw.chance(0.5)
    place = f"i * {count} + q" if by_row else "q * n + i"
    body = indented(
        [
            "int i = get_global_id(0);",
            f"{kind.name} t[{count}];",
            f"for (int q = 0; q < {count}; q++) t[q] = a[{place}];",
            *lines,
            "out[i] = s;",
        ]
    )
    return Draft(
        "private array",
        body,
        (f"global const {kind.name} *a", f"global {kind.name} *out", "int n"),
        {"a": array_of(kind, f"{count}*N", "random"), "out": array_of(kind, "N", "zeros"), "n": "int32:N"},
        two_sizes(draw),
        work,
        kind.bytes * (count + 1),
        {"type": kind.name, "access": "rows" if by_row else "columns", "dimensions": 1},
    )
