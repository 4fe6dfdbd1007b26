"""Forms over matrices: products, rows and columns, transpositions, all pairs of two lists."""

from __future__ import annotations

from apportion.suite.expressions import DOUBLE, FLOAT, INT, Draw, constant, statements
from apportion.suite.kernelforms.base import PLANE, Draft, array_of, beginning, indented, two_sizes


def product(draw: Draw) -> Draft:
    """A matrix product, plain: of either matrix or neither transposed, or of one with itself."""
    kind = draw.one((FLOAT, FLOAT, DOUBLE, INT))
    inner = draw.one((16, 32, 64, 96, 128, 256))
    way = draw.one(("plain", "right transposed", "left transposed", "itself"))
    left = {"left transposed": "a[k * h + j]"}.get(way, f"a[j * {inner} + k]")
    right = {"right transposed": f"b[i * {inner} + k]", "itself": f"a[min(i, h - 1) * {inner} + k]"}.get(
        way, "b[k * w + i]"
    )
    update = draw.one(
        (
            "s += {l} * {r};",
            "s = fma({l}, {r}, s);" if kind.is_float else "s += {l} * {r};",
            "s += {l} * {r} * " + constant(draw, kind) + ";",
        )
    )
    unroll = draw.one((1, 1, 2, 4))
    step = [
        update.format(l=left.replace("k", f"(k + {u})"), r=right.replace("k", f"(k + {u})"))
        for u in range(unroll)
    ]
    scaled = draw.chance(0.5)
    body = indented(
        [
            "int i = get_global_id(0), j = get_global_id(1);",
            f"{kind.name} s = 0;",
            f"for (int k = 0; k < {inner}; k += {unroll}) {{",
            *("    " + line for line in step),
            "}",
            f"out[j * w + i] = s{' * ' + constant(draw, kind) + ' + out[j * w + i]' if scaled else ''};",
        ]
    )
    return Draft(
        "matrix product",
        body,
        (
            f"global const {kind.name} *a",
            f"global const {kind.name} *b",
            f"global {kind.name} *out",
            "int w",
            "int h",
        ),
        {
            "a": array_of(kind, f"{inner}*N1", "random"),
            "b": array_of(kind, f"{inner}*N0", "random"),
            "out": array_of(kind, "N", "zeros"),
            "w": "int32:N0",
            "h": "int32:N1",
        },
        tuple(draw.some(PLANE, 2)),
        2.0 * inner,
        kind.bytes * 1.5,
        {"type": kind.name, "access": "rows", "dimensions": 2, "reuse": float(inner)},
    )


def product_tiled(draw: Draw) -> Draft:
    """A matrix product in tiles of local memory."""
    kind = draw.one((FLOAT, FLOAT, DOUBLE))
    tile = draw.one((8, 16, 16))
    turns = draw.one((2, 4, 8, 16))
    inner = tile * turns
    each = draw.one(
        ("s += p[lj][k] * q[k][li];", "s = fma(p[lj][k], q[k][li], s);", "s += p[lj][k] * q[li][k];")
    )
    pad = draw.one((0, 1))
    body = indented(
        [
            f"local {kind.name} p[{tile}][{tile + pad}], q[{tile}][{tile + pad}];",
            "int i = get_global_id(0), j = get_global_id(1), li = get_local_id(0), lj = get_local_id(1);",
            f"{kind.name} s = 0;",
            f"for (int t = 0; t < {turns}; t++) {{",
            f"    p[lj][li] = a[j * {inner} + t * {tile} + li];",
            f"    q[lj][li] = b[(t * {tile} + lj) * w + i];",
            "    barrier(CLK_LOCAL_MEM_FENCE);",
            f"    for (int k = 0; k < {tile}; k++) {each}",
            "    barrier(CLK_LOCAL_MEM_FENCE);",
            "}",
            f"out[j * w + i] = s * {constant(draw, kind)};",
        ]
    )
    return Draft(
        "matrix product in tiles",
        body,
        (f"global const {kind.name} *a", f"global const {kind.name} *b", f"global {kind.name} *out", "int w"),
        {
            "a": array_of(kind, f"{inner}*N1", "random"),
            "b": array_of(kind, f"{inner}*N0", "random"),
            "out": array_of(kind, "N", "zeros"),
            "w": "int32:N0",
        },
        ((tile, tile),),
        2.0 * inner,
        kind.bytes * 1.5,
        {
            "type": kind.name,
            "access": "rows",
            "dimensions": 2,
            "local": 1.0,
            "barriers": 2.0 * turns,
            "reuse": float(inner),
        },
    )


def rows(draw: Draw) -> Draft:
    """Each work-item over one row or one column of a matrix: products with vectors, sums, extremes, norms."""
    kind = draw.one((FLOAT, FLOAT, DOUBLE, INT))
    width = draw.one((8, 16, 31, 64, 128, 200))
    by_row = draw.chance(0.5)
    place = f"i * {width} + k" if by_row else "k * n + i"
    seeds = [f"m[{place}]", "v[k]"]
    way = draw.one(("product", "sum", "extreme", "norm", "chain"))
    inner = {
        "product": [f"s += {seeds[0]} * {seeds[1]};"],
        "sum": [f"s += {seeds[0]} * {constant(draw, kind)};"],
        "extreme": [f"s = {'fmax' if kind.is_float else 'max'}(s, {seeds[0]} - {seeds[1]});"],
        "norm": [f"{kind.name} d = {seeds[0]} - {seeds[1]};", "s += d * d;"],
        "chain": [
            f"{kind.name} x = {seeds[0]}, y = {seeds[1]};",
            *statements(draw, kind, [], draw.scale(1, 8), draw.one((0.0, 0.2)) if kind.is_float else 0.0),
            "s += x + y;",
        ],
    }[way]
    end = "sqrt(fabs(s))" if way == "norm" and kind.is_float else "s"
    body = indented(
        [
            "int i = get_global_id(0);",
            *(["if (i >= n) return;"] if draw.chance(0.5) else []),
            f"{kind.name} s = 0;",
            f"for (int k = 0; k < {width}; k++) {{",
            *("    " + line for line in inner),
            "}",
            f"out[i] = {end};",
        ]
    )
    return Draft(
        "rows of a matrix",
        body,
        (f"global const {kind.name} *m", f"global const {kind.name} *v", f"global {kind.name} *out", "int n"),
        {
            "m": array_of(kind, f"{width}*N", "random"),
            "v": array_of(kind, str(width), "random"),
            "out": array_of(kind, "N", "zeros"),
            "n": "int32:N",
        },
        two_sizes(draw),
        2.0 * width * len(inner),
        kind.bytes * (width + 1),
        {"type": kind.name, "access": "rows" if by_row else "columns", "dimensions": 1},
    )


def transposed(draw: Draw) -> Draft:
    """A matrix transposed, or with rows moved, through local memory or not."""
    kind = draw.one((FLOAT, DOUBLE, INT))
    tiled = draw.chance(0.5)
    lines = (
        statements(draw, kind, [], draw.scale(1, 12), 0.1 if kind.is_float else 0.0)
        if draw.chance(0.5)
        else []
    )
    tile = draw.one((8, 16))
    if tiled:
        pad = draw.one((0, 1))
        start = [
            f"local {kind.name} t[{tile}][{tile + pad}];",
            "int li = get_local_id(0), lj = get_local_id(1);",
            "t[lj][li] = a[get_global_id(1) * w + get_global_id(0)];",
            "barrier(CLK_LOCAL_MEM_FENCE);",
            f"int i = get_group_id(1) * {tile} + li, j = get_group_id(0) * {tile} + lj;",
            *beginning(kind, "t[li][lj]", constant(draw, kind)),
            *lines,
            "out[j * h + i] = x + y;",
        ]
    else:
        start = [
            "int i = get_global_id(0), j = get_global_id(1);",
            *beginning(kind, "a[j * w + i]", constant(draw, kind)),
            *lines,
            "out[i * h + j] = x + y;",
        ]
    return Draft(
        "transposition",
        indented(start),
        (f"global const {kind.name} *a", f"global {kind.name} *out", "int w", "int h"),
        {
            "a": array_of(kind, "N", "random"),
            "out": array_of(kind, "N", "zeros"),
            "w": "int32:N0",
            "h": "int32:N1",
        },
        ((tile, tile),) if tiled else tuple(draw.some(PLANE, 2)),
        2.0 * len(lines) + 1,
        2 * kind.bytes,
        {
            "type": kind.name,
            "access": "columns",
            "dimensions": 2,
            "local": float(tiled),
            "barriers": float(tiled),
        },
    )


def pairs(draw: Draw) -> Draft:
    """Each work-item against all of a list: forces, distances, nearest neighbours."""
    kind = draw.one((FLOAT, FLOAT, DOUBLE))
    others = draw.one((32, 64, 128, 256, 512))
    tiled = draw.chance(0.4)
    way = draw.one(("force", "nearest", "kernel", "count"))
    root = draw.one(("rsqrt(d + {c})", "1 / sqrt(d + {c})", "1 / (d + {c})")).format(c=constant(draw, kind))
    inner = {
        "force": [f"{kind.name} r = {root};", "s += dx * r * r * r;", "t += dy * r * r * r;"],
        "nearest": ["if (d < t || k == 0) { t = d; s = k; }"],
        "kernel": [f"s += exp(-d * {constant(draw, kind)});", "t = fmax(t, d);"],
        "count": [f"s += d < {constant(draw, kind)};", "t += d;"],
    }[way]
    at = "near[2 * k]", "near[2 * k + 1]"
    start = ["int i = get_global_id(0);", f"{kind.name} px = a[2 * i], py = a[2 * i + 1], s = 0, t = 0;"]
    if tiled:
        start += [
            f"local {kind.name} near[{2 * others}];",
            f"for (int k = get_local_id(0); k < {2 * others}; k += get_local_size(0)) near[k] = b[k];",
            "barrier(CLK_LOCAL_MEM_FENCE);",
        ]
    else:
        at = "b[2 * k]", "b[2 * k + 1]"
    body = indented(
        [
            *start,
            f"for (int k = 0; k < {others}; k++) {{",
            f"    {kind.name} dx = {at[0]} - px, dy = {at[1]} - py;",
            f"    {kind.name} d = dx * dx + dy * dy;",
            *("    " + line for line in inner),
            "}",
            "out[i] = s + t;",
        ]
    )
    return Draft(
        "all pairs",
        body,
        (f"global const {kind.name} *a", f"global const {kind.name} *b", f"global {kind.name} *out"),
        {
            "a": array_of(kind, "2*N", "random"),
            "b": array_of(kind, str(2 * others), "random"),
            "out": array_of(kind, "N", "zeros"),
        },
        two_sizes(draw),
        10.0 * others,
        3 * kind.bytes,
        {
            "type": kind.name,
            "special": 0.1,
            "access": "straight",
            "dimensions": 1,
            "local": float(tiled),
            "barriers": float(tiled),
            "reuse": float(others),
        },
    )
