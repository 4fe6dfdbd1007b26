"""Forms that go over arrays place by place: elements, neighbours, solvers of equations, images."""

from __future__ import annotations

from apportion.suite.expressions import DOUBLE, FLOAT, INT, KINDS, SCALARS, Draw, constant, statements
from apportion.suite.kernelforms.base import (
    PLANE,
    SPACE,
    Draft,
    array_of,
    beginning,
    chain,
    indented,
    irregularity,
    reading,
    two_sizes,
)


def elementwise(draw: Draw) -> Draft:
    """Each element from the same, or another, place of some arrays."""
    kind = draw.one(KINDS)
    inputs = draw.scale(1, 5)
    parameters, arguments, seeds, ways = [], {}, [], []
    gathers = False
    for number in range(inputs):
        name = f"a{number}"
        parameters.append(f"global const {kind.name} *{name}")
        arguments[name] = array_of(kind, "N", "random")
        text, way, needs = reading(draw, name)
        gathers |= needs
        seeds.append(text)
        ways.append(way)
    if gathers:
        parameters.append("global const int *places")
        arguments["places"] = "int32[N]=below:N"
    outputs = draw.one((1, 1, 1, 2))
    for number in range(outputs):
        parameters.append(f"global {kind.name} *out{number}")
        arguments[f"out{number}"] = array_of(kind, "N", "zeros")
    parameters.append("int n")
    arguments["n"] = "int32:N"
    loaded = [f"const {kind.name} s{number} = {seed};" for number, seed in enumerate(seeds)]
    lines, work, special = chain(draw, kind, [f"s{number}" for number in range(inputs)])
    stores = ["out0[i] = x;", "out1[i] = y;"][:outputs]
    if outputs == 1:
        stores = ["out0[i] = x + y;"]
    guard = ["if (i >= n) return;"] if draw.chance(0.6) else []
    body = indented(
        [
            "int i = get_global_id(0);",
            *guard,
            *loaded,
            *beginning(kind, "s0", f"s{inputs - 1}"),
            *lines,
            *stores,
        ]
    )
    traits: dict[str, float | str] = {
        "type": kind.name,
        "special": special,
        "access": max(ways, key=irregularity),
        "dimensions": 1,
    }
    size = kind.bytes * (inputs + outputs) + 4 * gathers
    return Draft("elementwise", body, tuple(parameters), arguments, two_sizes(draw), work, size, traits)


def scatter(draw: Draw) -> Draft:
    """Each element to another place: every place is written once."""
    kind = draw.one(SCALARS)
    odd = draw.one((3, 5, 17, 101, 4097))
    lines, work, special = chain(draw, kind, ["s"])
    way = draw.one(("reversed", "strided", "interleaved"))
    place = {
        "reversed": "n - 1 - i",
        "strided": f"(uint)i * {odd}u & (uint)(n - 1)",  # odd, and n a power of two: a permutation
        "interleaved": "(i & 1 ? n / 2 : 0) + i / 2",
    }[way]
    body = indented(
        [
            "int i = get_global_id(0);",
            f"const {kind.name} s = a[i];",
            *beginning(kind, "s", constant(draw, kind)),
            *lines,
            f"out[{place}] = x + y;",
        ]
    )
    return Draft(
        "scatter",
        body,
        (f"global const {kind.name} *a", f"global {kind.name} *out", "int n"),
        {"a": array_of(kind, "N", "random"), "out": array_of(kind, "N", "zeros"), "n": "int32:N"},
        two_sizes(draw),
        work,
        2 * kind.bytes,
        {
            "type": kind.name,
            "special": special,
            "access": "gathered" if way == "strided" else way,
            "dimensions": 1,
            "power of two": 1.0,
        },
    )


def stencil_line(draw: Draw) -> Draft:
    """A sum over neighbours in a line, with or without a copy of them in local memory."""
    kind = draw.one((FLOAT, FLOAT, DOUBLE, INT))
    radius = draw.scale(1, 16)
    lines, work, special = chain(draw, kind, ["s"]) if draw.chance(0.4) else ([], 0.0, 0.0)
    tiled = draw.chance(0.5)
    c = constant(draw, kind)
    start = ["int i = get_global_id(0);"]
    if tiled:
        start += [
            "int l = get_local_id(0), size = get_local_size(0);",
            f"for (int k = l; k < size + {2 * radius}; k += size) {{",
            f"    int j = clamp((int)(get_group_id(0) * size) + k - {radius}, 0, n - 1);",
            "    tile[k] = a[j];",
            "}",
            "barrier(CLK_LOCAL_MEM_FENCE);",
            f"{kind.name} s = 0;",
            f"for (int k = 0; k <= {2 * radius}; k++) s += tile[l + k] * {c};",
        ]
    else:
        start += [
            f"{kind.name} s = 0;",
            f"for (int k = -{radius}; k <= {radius}; k++) s += a[clamp(i + k, 0, n - 1)] * {c};",
        ]
    body = indented([*start, *beginning(kind, "s", "a[i]"), *lines, "out[i] = x + y;"])
    parameters = [f"global const {kind.name} *a", f"global {kind.name} *out", "int n"]
    arguments = {"a": array_of(kind, "N", "random"), "out": array_of(kind, "N", "zeros"), "n": "int32:N"}
    if tiled:
        parameters.append(f"local {kind.name} *tile")
        arguments["tile"] = f"local:{kind.bytes}*L+{kind.bytes * 2 * radius}"
    return Draft(
        "stencil in a line",
        body,
        tuple(parameters),
        arguments,
        two_sizes(draw),
        work + 4 * radius,
        2 * kind.bytes,
        {
            "type": kind.name,
            "special": special,
            "access": "neighbours",
            "local": float(tiled),
            "barriers": float(tiled),
            "dimensions": 1,
        },
    )


def stencil_plane(draw: Draw) -> Draft:
    """A sum over neighbours in a plane: a cross or a box, clamped or guarded at the border."""
    kind = draw.one((FLOAT, FLOAT, DOUBLE, INT))
    radius = draw.one((1, 1, 1, 2, 3, 4))
    cross, guarded = draw.chance(0.5), draw.chance(0.5)
    c = constant(draw, kind)
    lines, work, special = chain(draw, kind, ["s"]) if draw.chance(0.4) else ([], 0.0, 0.0)
    near = [
        (j, i)
        for j in range(-radius, radius + 1)
        for i in range(-radius, radius + 1)
        if not cross or 0 in (i, j)
    ]
    start = ["int i = get_global_id(0), j = get_global_id(1);"]
    if guarded:
        start += [
            f"if (i < {radius} || j < {radius} || i >= w - {radius} || j >= h - {radius}) {{ "
            "out[j * w + i] = a[j * w + i]; return; }",
        ]
    if len(near) <= 13 or draw.chance(0.3):
        terms = [
            f"a[(j + {dj}) * w + i + {di}]"
            if guarded
            else f"a[clamp(j + {dj}, 0, h - 1) * w + clamp(i + {di}, 0, w - 1)]"
            for dj, di in near
        ]
        start += [f"{kind.name} s = 0;", *(f"s += {term} * {constant(draw, kind)};" for term in terms)]
    elif cross:
        start += [
            f"{kind.name} s = 0;",
            f"for (int k = -{radius}; k <= {radius}; k++)",
            f"    s += (a[clamp(j + k, 0, h - 1) * w + i] + a[j * w + clamp(i + k, 0, w - 1)]) * {c};",
        ]
    else:
        start += [
            f"{kind.name} s = 0;",
            f"for (int dj = -{radius}; dj <= {radius}; dj++)",
            f"    for (int di = -{radius}; di <= {radius}; di++)",
            f"        s += a[clamp(j + dj, 0, h - 1) * w + clamp(i + di, 0, w - 1)] * {c};",
        ]
    body = indented([*start, *beginning(kind, "s", "a[j * w + i]"), *lines, "out[j * w + i] = x + y;"])
    return Draft(
        "stencil in a plane",
        body,
        (f"global const {kind.name} *a", f"global {kind.name} *out", "int w", "int h", "int n"),
        {
            "a": array_of(kind, "N", "random"),
            "out": array_of(kind, "N", "zeros"),
            "w": "int32:N0",
            "h": "int32:N1",
            "n": "int32:N",
        },
        tuple(draw.some(PLANE, 2)),
        work + 3 * len(near),
        2 * kind.bytes,
        {
            "type": kind.name,
            "special": special,
            "access": "neighbours",
            "dimensions": 2,
            "divergence": float(guarded),
        },
    )


def stencil_space(draw: Draw) -> Draft:
    """A sum over neighbours in space, of one or several arrays, as solvers of equations do."""
    kind = draw.one((FLOAT, DOUBLE))
    fields = draw.one((1, 1, 2, 3, 5))
    lines, work, special = chain(draw, kind, ["s"]) if draw.chance(0.5) else ([], 0.0, 0.0)
    start = [
        "int i = get_global_id(0), j = get_global_id(1), k = get_global_id(2);",
        "int here = (k * ny + j) * nx + i;",
        "int west = i > 0 ? here - 1 : here, east = i < nx - 1 ? here + 1 : here;",
        "int south = j > 0 ? here - nx : here, north = j < ny - 1 ? here + nx : here;",
        "int below = k > 0 ? here - nx * ny : here, above = k < nz - 1 ? here + nx * ny : here;",
        f"{kind.name} s = 0;",
    ]
    for number in range(fields):
        c, d = constant(draw, kind), constant(draw, kind)
        start.append(
            f"s += {c} * u{number}[here] + {d} * (u{number}[west] + u{number}[east] + u{number}[south] + "
            f"u{number}[north] + u{number}[below] + u{number}[above]);"
        )
    body = indented([*start, *beginning(kind, "s", "u0[here]"), *lines, "out[here] = x + y;"])
    arrays = [f"u{number}" for number in range(fields)]
    return Draft(
        "stencil in space",
        body,
        (
            *(f"global const {kind.name} *{name}" for name in arrays),
            f"global {kind.name} *out",
            "int nx",
            "int ny",
            "int nz",
            "int n",
        ),
        {
            **{name: array_of(kind, "N", "random") for name in arrays},
            "out": array_of(kind, "N", "zeros"),
            "nx": "int32:N0",
            "ny": "int32:N1",
            "nz": "int32:N2",
            "n": "int32:N",
        },
        tuple(draw.some(SPACE, 2)),
        work + 16 * fields,
        kind.bytes * (fields + 1),
        {"type": kind.name, "special": special, "access": "neighbours", "dimensions": 3},
    )


def strided_loop(draw: Draw) -> Draft:
    """Few work-items that go over a long array together, each with the stride of the whole range."""
    kind = draw.one((FLOAT, DOUBLE, INT))
    each = draw.one((8, 32, 128))
    lines, work, special = chain(draw, kind, ["s"]) if draw.chance(0.3) else ([], 0.0, 0.0)
    blocked = draw.chance(0.3)
    head = (
        f"for (int j = i * {each}; j < (i + 1) * {each}; j++) {{"
        if blocked
        else "for (int j = i; j < n; j += get_global_size(0)) {"
    )
    way = draw.one(("update", "sum"))
    inner = [
        f"const {kind.name} s = a[j];",
        *beginning(kind, "s", constant(draw, kind)),
        *lines,
        "out[j] = x + y;" if way == "update" else "total += x + y;",
    ]
    body = indented(
        [
            "int i = get_global_id(0);",
            *([f"{kind.name} total = 0;"] if way == "sum" else []),
            head,
            *("    " + line for line in inner),
            "}",
            *(["out[i] = total;"] if way == "sum" else []),
        ]
    )
    return Draft(
        "loop over a long array",
        body,
        (f"global const {kind.name} *a", f"global {kind.name} *out", "int n"),
        {
            "a": array_of(kind, f"{each}*N", "random"),
            "out": array_of(kind, f"{each}*N", "zeros"),
            "n": f"int32:{each}*N",
        },
        two_sizes(draw),
        each * (work + 2),
        2.0 * each * kind.bytes,
        {"type": kind.name, "special": special, "access": "rows" if blocked else "straight", "dimensions": 1},
    )


def solver(draw: Draw) -> Draft:
    """Long straight arithmetic on many arrays of components, as codes for flows and crystals have it."""
    kind = draw.one((DOUBLE, DOUBLE, FLOAT))
    components = draw.one((3, 5, 5))
    lines: list[str] = []
    for number in range(components):
        lines.append(
            f"const {kind.name} u{number} = u[{number} * n + here], r{number} = r[{number} * n + here];"
        )
    body_lines, count = [], draw.scale(8, 60)
    seeds = [f"u{number}" for number in range(components)] + [f"r{number}" for number in range(components)]
    body_lines += statements(draw, kind, seeds, count, draw.one((0.0, 0.05)))
    spread = [
        f"r[{number} * n + here] = x * {constant(draw, kind)} + y * {constant(draw, kind)} + r{number};"
        for number in range(components)
    ]
    space = draw.chance(0.6)
    start = (
        [
            "int i = get_global_id(0), j = get_global_id(1), k = get_global_id(2);",
            "if (k > nz - 1 || j > ny - 1 || i > nx - 1) return;",
            "int here = (k * ny + j) * nx + i;",
        ]
        if space
        else ["int here = get_global_id(0);"]
    )
    turns = draw.one((1, 1, 1, 4, 12))
    loop = (
        body_lines
        if turns == 1
        else [f"for (int m = 0; m < {turns}; m++) {{", *("    " + t for t in body_lines), "}"]
    )
    body = indented([*start, *lines, *beginning(kind, "u0", "r0"), *loop, *spread])
    sizes = {"nx": "int32:N0", "ny": "int32:N1", "nz": "int32:N2"} if space else {}
    return Draft(
        "solver",
        body,
        (
            f"global const {kind.name} *u",
            f"global {kind.name} *r",
            "int n",
            *(f"int {name}" for name in sizes),
        ),
        {
            "u": array_of(kind, f"{components}*N", "random"),
            "r": array_of(kind, f"{components}*N", "random"),
            "n": "int32:N",
            **sizes,
        },
        tuple(draw.some(SPACE, 2)) if space else two_sizes(draw),
        2.0 * count * turns + 4 * components,
        2.0 * components * kind.bytes,
        {"type": kind.name, "access": "straight", "dimensions": 3 if space else 1},
    )


def image(draw: Draw) -> Draft:
    """Points of an image: colours changed, levels cut, sampled anew at other places."""
    way = draw.one(("colours", "levels", "sample", "blend"))
    lines = statements(draw, FLOAT, ["s"], draw.scale(2, 24), draw.one((0.0, 0.15, 0.4)))
    reads = {
        "colours": ["float s = 0.299f * a[3 * here] + 0.587f * a[3 * here + 1] + 0.114f * a[3 * here + 2];"],
        "levels": ["float s = a[here] > 0.5f ? a[here] : 0.5f * a[here];"],
        "sample": [
            "float fx = i * 0.73f, fy = j * 0.61f;",
            "int cx = min((int)fx, w - 2), cy = min((int)fy, h - 2);",
            "float u = fx - cx, v = fy - cy;",
            "float s = (1 - v) * ((1 - u) * a[cy * w + cx] + u * a[cy * w + cx + 1])"
            " + v * ((1 - u) * a[(cy + 1) * w + cx] + u * a[(cy + 1) * w + cx + 1]);",
        ],
        "blend": ["float s = mix(a[here], b[here], 0.3f);"],
    }[way]
    byte = draw.chance(0.4)
    out = "uchar" if byte else "float"
    store = "out[here] = (uchar)(clamp(x + y, 0.0f, 1.0f) * 255.0f);" if byte else "out[here] = x + y;"
    body = indented(
        [
            "int i = get_global_id(0), j = get_global_id(1);",
            "int here = j * w + i;",
            *reads,
            *beginning(FLOAT, "s", "0.5f"),
            *lines,
            store,
        ]
    )
    depth = 3 if way == "colours" else 1
    return Draft(
        "image",
        body,
        ("global const float *a", "global const float *b", f"global {out} *out", "int w", "int h"),
        {
            "a": f"float32[{depth}*N]=random",
            "b": "float32[N]=random",
            "out": f"{'uint8' if byte else 'float32'}[N]=zeros",
            "w": "int32:N0",
            "h": "int32:N1",
        },
        tuple(draw.some(PLANE, 2)),
        2.0 * len(lines) + 10,
        4.0 * depth + 4 + (1 if byte else 4),
        {"type": "float", "access": "neighbours" if way == "sample" else "straight", "dimensions": 2},
    )
