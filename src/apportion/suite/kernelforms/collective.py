"""Forms in which work-items of a group do something together: reductions, scans, histograms, exchanges."""

from __future__ import annotations

from apportion.suite.expressions import DOUBLE, FLOAT, INT, LONG, UINT, Draw, constant, statements
from apportion.suite.kernelforms.base import Draft, array_of, beginning, chain, indented, two_sizes


def reduction(draw: Draw) -> Draft:
    """A sum, product or extreme of each group, in local memory, after some elements of each work-item."""
    kind = draw.one((FLOAT, FLOAT, DOUBLE, INT, UINT))
    each = draw.one((1, 1, 2, 4, 8, 16))
    operation = draw.one(("+", "+", "max", "min"))
    name = operation if not kind.is_float or operation == "+" else f"f{operation}"
    both = "{a} + {b}" if operation == "+" else f"{name}({{a}}, {{b}})"
    lines, work, special = chain(draw, kind, []) if draw.chance(0.4) else ([], 0.0, 0.0)
    falling = draw.chance(0.7)
    tree = (
        [
            "for (int d = get_local_size(0) / 2; d > 0; d /= 2) {",
            "    if (l < d) kept[l] = " + both.format(a="kept[l]", b="kept[l + d]") + ";",
        ]
        if falling
        else [
            "for (int d = 1; d < (int)get_local_size(0); d *= 2) {",
            "    if (l % (2 * d) == 0) kept[l] = " + both.format(a="kept[l]", b="kept[l + d]") + ";",
        ]
    )
    last = draw.one(("group", "group", "atomic")) if kind in (INT, UINT) else "group"
    atomic = {"+": "atomic_add", "max": "atomic_max", "min": "atomic_min"}[operation]
    body = indented(
        [
            "int l = get_local_id(0), i = get_global_id(0);",
            f"{kind.name} s = {'0' if operation == '+' else 'a[i]'};",
            f"for (int e = 0; e < {each}; e++) {{",
            *(f"    {line}" for line in beginning(kind, "a[e * n + i]", constant(draw, kind))),
            *(f"    {line}" for line in lines),
            "    s = " + both.format(a="s", b="(x + y)") + ";",
            "}",
            "kept[l] = s;",
            "barrier(CLK_LOCAL_MEM_FENCE);",
            *tree,
            "    barrier(CLK_LOCAL_MEM_FENCE);",
            "}",
            f"if (l == 0) {atomic}(out, kept[0]);"
            if last == "atomic"
            else "if (l == 0) out[get_group_id(0)] = kept[0];",
        ]
    )
    return Draft(
        "reduction",
        body,
        (f"global const {kind.name} *a", f"global {kind.name} *out", f"local {kind.name} *kept", "int n"),
        {
            "a": array_of(kind, f"{each}*N", "random"),
            "out": array_of(kind, "1" if last == "atomic" else "N/L", "zeros"),
            "kept": f"local:{kind.bytes}*L",
            "n": "int32:N",
        },
        two_sizes(draw),
        (work + 2) * each + 16,
        kind.bytes * each,
        {
            "type": kind.name,
            "special": special,
            "access": "straight",
            "dimensions": 1,
            "local": 1.0,
            "barriers": 7.0,
            "atomics": float(last == "atomic"),
        },
    )


def scan(draw: Draw) -> Draft:
    """Running sums, or extremes, inside each group."""
    kind = draw.one((FLOAT, INT, UINT, LONG))
    operation = draw.one(("+", "+", "max"))
    name = "fmax" if kind.is_float else "max"
    both = "kept[l] + before" if operation == "+" else f"{name}(kept[l], before)"
    lines = statements(draw, kind, [], draw.scale(1, 10), 0.0) if draw.chance(0.5) else []
    neutral = "0" if operation == "+" else "kept[l]"
    body = indented(
        [
            "int l = get_local_id(0), i = get_global_id(0);",
            *beginning(kind, "a[i]", constant(draw, kind)),
            *lines,
            "kept[l] = x + y;",
            "barrier(CLK_LOCAL_MEM_FENCE);",
            "for (int d = 1; d < (int)get_local_size(0); d *= 2) {",
            f"    {kind.name} before = l >= d ? kept[l - d] : {neutral};",
            "    barrier(CLK_LOCAL_MEM_FENCE);",
            f"    kept[l] = {both};",
            "    barrier(CLK_LOCAL_MEM_FENCE);",
            "}",
            "out[i] = kept[l];",
        ]
    )
    return Draft(
        "scan",
        body,
        (f"global const {kind.name} *a", f"global {kind.name} *out", f"local {kind.name} *kept"),
        {
            "a": array_of(kind, "N", "random"),
            "out": array_of(kind, "N", "zeros"),
            "kept": f"local:{kind.bytes}*L",
        },
        two_sizes(draw),
        2.0 * len(lines) + 30,
        2 * kind.bytes,
        {"type": kind.name, "access": "straight", "dimensions": 1, "local": 1.0, "barriers": 14.0},
    )


def histogram(draw: Draw) -> Draft:
    """Counts, or sums, by what the data says: atomics on global memory, or on local memory first."""
    bins = draw.one((16, 64, 256, 1024, 4096))
    each = draw.one((1, 4, 16))
    kind = draw.one((INT, UINT))
    through_local = bins <= 1024 and draw.chance(0.5)
    lines = statements(draw, kind, [], draw.scale(1, 16), 0.0)
    weight = draw.one(("1", "(int)(v & 7)", "1")) if kind is INT else "1u"
    update = draw.one(("atomic_add", "atomic_add", "atomic_max"))
    target = "counts" if through_local else "out"
    inner = [
        f"for (int e = 0; e < {each}; e++) {{",
        f"    {kind.name} v = a[e * n + i];",
        f"    {kind.name} x = v, y = {constant(draw, kind)};",
        *("    " + line for line in lines),
        f"    {update}(&{target}[((uint)x + (uint)y) & {bins - 1}u], {weight});",
        "}",
    ]
    start = ["int i = get_global_id(0);"]
    if through_local:
        start += [
            f"local {kind.name} counts[{bins}];",
            f"for (int b = get_local_id(0); b < {bins}; b += get_local_size(0)) counts[b] = 0;",
            "barrier(CLK_LOCAL_MEM_FENCE);",
            *inner,
            "barrier(CLK_LOCAL_MEM_FENCE);",
            f"for (int b = get_local_id(0); b < {bins}; b += get_local_size(0)) "
            f"{update}(&out[b], counts[b]);",
        ]
    else:
        start += inner
    return Draft(
        "histogram",
        indented(start),
        (f"global const {kind.name} *a", f"global {kind.name} *out", "int n"),
        {
            "a": array_of(kind, f"{each}*N", "random"),
            "out": array_of(kind, str(bins), "zeros"),
            "n": "int32:N",
        },
        two_sizes(draw),
        (2.0 * len(lines) + 6) * each,
        4.0 * each,
        {
            "type": kind.name,
            "access": "gathered",
            "dimensions": 1,
            "local": float(through_local),
            "barriers": 2.0 * through_local,
            "atomics": float(each),
        },
    )


def exchanged(draw: Draw) -> Draft:
    """Work-items of a group that exchange values in local memory, step after step: butterflies, sorts,
    waves."""
    kind = draw.one((FLOAT, INT))
    way = draw.one(("butterfly", "bitonic", "wave"))
    size = draw.one((32, 64, 128, 256))
    low, high = ("fmin", "fmax") if kind.is_float else ("min", "max")
    c = constant(draw, kind)
    if way == "butterfly":
        steps = [
            f"for (int d = 1; d < {size}; d *= 2) {{",
            f"    {kind.name} other = t[l ^ d], own = t[l];",
            "    barrier(CLK_LOCAL_MEM_FENCE);",
            f"    t[l] = (l & d) ? (other - own) * {c} : (own + other) * {c};"
            if kind.is_float
            else "    t[l] = (l & d) ? other - own : own + other;",
            "    barrier(CLK_LOCAL_MEM_FENCE);",
            "}",
        ]
    elif way == "bitonic":
        steps = [
            f"for (int m = 2; m <= {size}; m *= 2)",
            "    for (int d = m / 2; d > 0; d /= 2) {",
            f"        {kind.name} own = t[l], other = t[l ^ d];",
            "        barrier(CLK_LOCAL_MEM_FENCE);",
            "        int rising = (l & m) == 0, first = (l & d) == 0;",
            f"        t[l] = rising == first ? {low}(own, other) : {high}(own, other);",
            "        barrier(CLK_LOCAL_MEM_FENCE);",
            "    }",
        ]
    else:
        steps = [
            f"for (int r = 0; r < {draw.scale(2, 32)}; r++) {{",
            f"    {kind.name} near = t[(l + {size - 1}) & {size - 1}] + t[(l + 1) & {size - 1}];",
            "    barrier(CLK_LOCAL_MEM_FENCE);",
            f"    t[l] = (near + t[l]) * {'0.3f' if kind.is_float else '1'};",
            "    barrier(CLK_LOCAL_MEM_FENCE);",
            "}",
        ]
    body = indented(
        [
            f"local {kind.name} t[{size}];",
            "int l = get_local_id(0), i = get_global_id(0);",
            f"t[l] = a[i] * {c};",
            "barrier(CLK_LOCAL_MEM_FENCE);",
            *steps,
            "out[i] = t[l];",
        ]
    )
    return Draft(
        "exchange",
        body,
        (f"global const {kind.name} *a", f"global {kind.name} *out"),
        {"a": array_of(kind, "N", "random"), "out": array_of(kind, "N", "zeros")},
        ((size,),),
        80.0,
        2 * kind.bytes,
        {"type": kind.name, "access": "straight", "dimensions": 1, "local": 1.0, "barriers": 24.0},
    )


def looked_up(draw: Draw) -> Draft:
    """Values from a table in constant, global or local memory, once or round after round."""
    kind = draw.one((FLOAT, INT, UINT))
    entries = draw.one((16, 256, 1024, 4096))
    rounds = draw.scale(1, 64)
    where = draw.one(("constant", "global", "local")) if entries <= 1024 else "global"
    table = "kept" if where == "local" else "table"
    start = ["int i = get_global_id(0);"]
    if where == "local":
        start += [
            f"local {kind.name} kept[{entries}];",
            f"for (int k = get_local_id(0); k < {entries}; k += get_local_size(0)) kept[k] = table[k];",
            "barrier(CLK_LOCAL_MEM_FENCE);",
        ]
    lines = statements(draw, kind, ["v"], draw.scale(1, 6), 0.0)
    body = indented(
        [
            *start,
            "uint place = (uint)keys[i];",
            *beginning(kind, "0", constant(draw, kind)),
            f"for (int r = 0; r < {rounds}; r++) {{",
            f"    {kind.name} v = {table}[place & {entries - 1}u];",
            *("    " + line for line in lines),
            "    place = place * 1664525u + 1013904223u;",
            "    place ^= place >> 11;",
            "}",
            "out[i] = x + y;",
        ]
    )
    space = "constant" if where == "constant" else "global const"
    return Draft(
        "table",
        body,
        (f"{space} {kind.name} *table", "global const int *keys", f"global {kind.name} *out"),
        {
            "table": array_of(kind, str(entries), "random"),
            "keys": f"int32[N]=below:{entries}",
            "out": array_of(kind, "N", "zeros"),
        },
        two_sizes(draw),
        rounds * (2.0 * len(lines) + 6),
        8.0,
        {
            "type": kind.name,
            "access": "gathered",
            "dimensions": 1,
            "local": float(where == "local"),
            "barriers": float(where == "local"),
        },
    )
