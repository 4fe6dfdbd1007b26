"""OpenCL's built-in functions for kernels that are counted: written in OpenCL C when a kernel needs them.

Work-item functions, barriers and `printf` are not here: the native part has them. Each definition carries the
mangled name that the kernel calls as its symbol, so no overload has to be resolved and no header is in the
way. A vector's function is its scalar one, lane by lane. What a function does inside is not counted, except
that atomics, `vload` and `vstore` touch memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from apportion.errors import InvalidSetting
from apportion.measure.counters import image_builtins
from apportion.measure.counters.mangling import Type, demangled

_ONE = (
    "acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp2 exp10 expm1 fabs floor lgamma log "
    "log10 log1p log2 logb rint round sin sinh sqrt tan tanh tgamma trunc"
)
_TWO = "atan2 copysign fdim fmax fmin fmod hypot nextafter pow remainder ldexp"
_PARAMETERS = {**dict.fromkeys(_ONE.split(), 1), **dict.fromkeys(_TWO.split(), 2), "fma": 3}
"Functions that the C library has too, `exp` for double and `expf` for float: how many parameters."

_FLOATING = {
    "rsqrt": "1 / L(sqrt)(a)", "mad": "a * b + c", "mix": "a + (b - a) * c", "step": "b < a ? 0 : 1",
    "sign": "a > 0 ? 1 : a < 0 ? -1 : a", "degrees": "a * (T)57.29577951308232",
    "radians": "a * (T)0.017453292519943295", "powr": "L(pow)(a, b)", "pown": "L(pow)(a, (T)b)",
    "rootn": "L(pow)(a, 1 / (T)b)", "sinpi": "L(sin)(a * (T)3.141592653589793)",
    "cospi": "L(cos)(a * (T)3.141592653589793)", "tanpi": "L(tan)(a * (T)3.141592653589793)",
    "recip": "1 / a", "divide": "a / b", "maxmag": "L(fabs)(a) > L(fabs)(b) ? a : L(fabs)(b) > L(fabs)(a) ? b"
    " : L(fmax)(a, b)", "minmag": "L(fabs)(a) < L(fabs)(b) ? a : L(fabs)(b) < L(fabs)(a) ? b : L(fmin)(a, b)",
    "smoothstep": "({ T t = (c - a) / (b - a); t = t < 0 ? 0 : t > 1 ? 1 : t; t * t * (3 - 2 * t); })",
    "atan2pi": "L(atan2)(a, b) / (T)3.141592653589793", "asinpi": "L(asin)(a) / (T)3.141592653589793",
    "acospi": "L(acos)(a) / (T)3.141592653589793", "atanpi": "L(atan)(a) / (T)3.141592653589793",
    "nan": "(T)NAN",
}  # fmt: skip
_RELATIONAL = {
    "isnan": "a != a", "isinf": "a - a != 0 && a == a", "isfinite": "a - a == 0",
    "isnormal": "a - a == 0 && L(fabs)(a) >= (T)(sizeof(T) == 4 ? 1.17549435e-38 : 2.2250738585072014e-308)",
    "isequal": "a == b", "isnotequal": "a != b", "isgreater": "a > b", "isgreaterequal": "a >= b",
    "isless": "a < b", "islessequal": "a <= b", "islessgreater": "a < b || a > b",
    "isordered": "a == a && b == b", "isunordered": "a != a || b != b", "signbit": "L(copysign)(1, a) < 0",
}  # fmt: skip
_ANY = {"min": "b < a ? b : a", "max": "a < b ? b : a", "clamp": "a < b ? b : a > c ? c : a"}
_WIDE = {  # of two numbers of less than 64 bits, held in `long`
    "add_sat": "A + B < LOW ? LOW : A + B > HIGH ? HIGH : A + B",
    "sub_sat": "A - B < LOW ? LOW : A - B > HIGH ? HIGH : A - B",
    "mul_hi": "A * B >> BITS", "mad_hi": "(A * B >> BITS) + C",
    "hadd": "A + B >> 1", "rhadd": "A + B + 1 >> 1",
    "mad_sat": "A * B + C < LOW ? LOW : A * B + C > HIGH ? HIGH : A * B + C",
}  # fmt: skip
_INTEGER = {
    "abs": "a < 0 ? -a : a", "abs_diff": "a < b ? b - a : a - b", "mul24": "a * b", "mad24": "a * b + c",
    "rotate": "({ U n = (U)b % BITS; n ? (U)a << n | (U)a >> (BITS - n) : (U)a; })",
    "popcount": "__builtin_popcountl((ulong)(U)a)",
    "clz": "(U)a ? __builtin_clzl((ulong)(U)a) - (64 - BITS) : BITS",
    "ctz": "(U)a ? __builtin_ctzl((ulong)(U)a) : BITS",
}  # fmt: skip
_ATOMIC = {
    "add": "old + b", "sub": "old - b", "inc": "old + 1", "dec": "old - 1", "min": "b < old ? b : old",
    "max": "old < b ? b : old", "and": "old & b", "or": "old | b", "xor": "old ^ b", "xchg": "b",
    "cmpxchg": "old == b ? c : old",
}  # fmt: skip
_REDUCED = {
    "dot": "({sum(a * b)})", "length": "L(sqrt)({sum(a * a)})", "fast_length": "L(sqrt)({sum(a * a)})",
    "distance": "L(sqrt)({sum((a - b) * (a - b))})", "fast_distance": "L(sqrt)({sum((a - b) * (a - b))})",
}  # fmt: skip
_BITS = {"char": 8, "uchar": 8, "short": 16, "ushort": 16, "int": 32, "uint": 32, "long": 64, "ulong": 64}
_LETTERS = "abcdefgh"
_PROLOGUE = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
void touch_load(ulong, uint) __asm__("__apportion_load");
void touch_store(ulong, uint) __asm__("__apportion_store");
void touch_update(ulong, uint) __asm__("__apportion_update");
ulong local_id(uint) __asm__("_Z12get_local_idj");
"""


def definitions_of(symbols: Sequence[str]) -> str:
    """OpenCL C that defines these symbols.

    Raises:
        InvalidSetting: a function that is not known here; the message names it.
    """
    leaves: set[str] = set()
    bodies = [_definition(number, symbol, leaves) for number, symbol in enumerate(sorted(symbols))]
    declared = [_leaf_declaration(leaf) for leaf in sorted(leaves)]
    prologue = (
        [_PROLOGUE, image_builtins.PROLOGUE] if any("image" in each for each in symbols) else [_PROLOGUE]
    )
    return "\n".join([*prologue, *declared, *bodies]) + "\n"


def _definition(number: int, symbol: str, leaves: set[str]) -> str:
    if symbol == image_builtins.SAMPLER:
        return f'ulong f{number}(uint a) __asm__("{symbol}");\nulong f{number}(uint a) {{ return a; }}'
    parsed = demangled(symbol)
    if parsed is None:
        raise InvalidSetting(
            f"The kernel calls {symbol}, which nothing defines; counters need a kernel that is complete"
        )
    name, kinds = parsed
    written = _written(name, kinds)
    if written is None:
        called = f"{name}({', '.join(map(str, kinds))})"
        raise InvalidSetting(f"The kernel calls {called}, which cannot be counted yet")
    result, body = written

    def leaf(match: re.Match[str]) -> str:
        spelled = f"{match[1]}f" if kinds[0].scalar == "float" else match[1]
        leaves.add(spelled)
        return f"leaf_{spelled}"

    body = re.sub(r"\bL\((\w+)\)", leaf, body)
    parameters = (
        ", ".join(f"{kind} {letter}" for kind, letter in zip(kinds, _LETTERS, strict=False)) or "void"
    )
    head = f"{result} f{number}({parameters})"
    return f'{head} __asm__("{symbol}");\n{head} {{ {body} }}'


def _leaf_declaration(spelled: str) -> str:
    kind = "float" if spelled.endswith("f") and spelled[:-1] in _PARAMETERS else "double"
    base = spelled[:-1] if kind == "float" else spelled
    parameters = ", ".join([kind] * _PARAMETERS[base]) if base != "ldexp" else f"{kind}, int"
    return f'{kind} leaf_{spelled}({parameters}) __asm__("{spelled}");'


def _written(name: str, kinds: tuple[Type, ...]) -> tuple[str, str] | None:
    """The type of the result, and the body, of a function; None where it is not known."""
    if image_builtins.is_image_function(name):
        return image_builtins.written(name, kinds)
    plain = re.sub(r"^(?:native|half)_", "", name)
    if match := re.fullmatch(r"v(load|store)(2|3|4|8|16)", name):
        return _vector_access(match[1], int(match[2]), kinds)
    if match := re.fullmatch(r"atom(?:ic)?_(?:fetch_)?(\w+?)(?:_explicit)?", name):
        return _atomic(match[1], kinds)
    if match := re.fullmatch(r"convert_([a-z]+)(\d*)(_sat)?(?:_(rt[eznp]))?", name):
        return _conversion(match[1], bool(match[3]), match[4], kinds[0])
    if name in ("mem_fence", "read_mem_fence", "write_mem_fence", "prefetch"):
        return "void", ""
    if not kinds:
        return None
    first = kinds[0]
    if name in ("async_work_group_copy", "async_work_group_strided_copy"):
        return _copied_by_group(kinds)
    if name in ("any", "all"):
        return _any_or_all(name, first)
    if name in ("shuffle", "shuffle2"):
        return _shuffle(name, kinds)
    if plain in _REDUCED or plain in ("normalize", "fast_normalize", "cross"):
        return _geometric(plain, first)
    if name in ("sincos", "fract", "modf", "frexp"):
        return _with_pointer(name, kinds)
    return _by_lane(plain, kinds)


def _by_lane(name: str, kinds: tuple[Type, ...]) -> tuple[str, str] | None:
    first = kinds[0]
    floating = first.scalar in ("float", "double")
    result = first.scalar
    if name == "select":
        test = "c < 0" if first.lanes > 1 else "c"
        # The condition of a vector is its lanes' highest bit, whatever its sign.
        if first.lanes > 1 and kinds[2].scalar.startswith("u"):
            test = f"c >> {_BITS[kinds[2].scalar] - 1}"
        expression = f"({test}) ? b : a"
    elif name == "upsample":
        result = {"char": "short", "uchar": "ushort", "short": "int", "ushort": "uint", "int": "long",
                  "uint": "ulong"}.get(first.scalar, "")  # fmt: skip
        expression = f"({result})(({result})a << {_BITS.get(first.scalar, 0)} | b)"
    elif name in _ANY:
        expression = _ANY[name]
    elif floating and name in _PARAMETERS:
        letters = ", ".join(_LETTERS[: len(kinds)])
        expression = f"L({name})({letters})"
    elif floating and name in _FLOATING:
        expression = _FLOATING[name]
    elif floating and name in _RELATIONAL:
        result = "int" if first.lanes == 1 or first.scalar == "float" else "long"
        expression = f"({_RELATIONAL[name]}) ? {-1 if first.lanes > 1 else 1} : 0"
    elif first.scalar in _BITS and (name in _INTEGER or name in _WIDE):
        unsigned = first.scalar if first.scalar.startswith("u") else f"u{first.scalar}"
        bits = _BITS[first.scalar]
        if name in _WIDE:
            if bits == 64:
                return None
            low, high = (
                (0, 2**bits - 1) if first.scalar[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            )
            expression = _WIDE[name]
            for letter in "ABC":
                expression = re.sub(rf"\b{letter}\b", f"((long){letter.lower()})", expression)
            expression = expression.replace("LOW", f"({low}L)").replace("HIGH", f"({high}L)")
        else:
            expression = _INTEGER[name]
        expression = re.sub(r"\bU\b", unsigned, expression).replace("BITS", str(bits))
        if name in ("abs", "abs_diff"):
            result = unsigned
    else:
        return None
    expression = re.sub(r"\bT\b", first.scalar, expression)
    if first.lanes == 1:
        return result, f"return {expression};"
    return f"{result}{first.lanes}", _lanes(expression, kinds, f"{result}{first.lanes}")


def _lanes(expression: str, kinds: tuple[Type, ...], result: str) -> str:
    """A body that computes each lane of `r` from those of the arguments; scalars are the same for all."""
    lines = [f"{result} r;"]
    for lane in range(kinds[0].lanes):
        computed = expression
        for letter, kind in zip(_LETTERS, kinds, strict=False):
            if kind.lanes > 1:
                computed = re.sub(rf"(?<![\w.]){letter}\b", f"{letter}.s{lane:x}", computed)
        lines.append(f"r.s{lane:x} = {computed};")
    return " ".join([*lines, "return r;"])


def _geometric(name: str, kind: Type) -> tuple[str, str]:
    def total(expression: str) -> str:
        if kind.lanes == 1:
            return expression
        return " + ".join(
            "(" + re.sub(r"\b([ab])\b", rf"\1.s{lane:x}", expression) + ")" for lane in range(kind.lanes)
        )

    if name == "cross":
        rest = " r.s3 = 0;" if kind.lanes == 4 else ""
        return kind.value, (
            f"{kind.value} r; r.s0 = a.s1 * b.s2 - a.s2 * b.s1; r.s1 = a.s2 * b.s0 - a.s0 * b.s2; "
            f"r.s2 = a.s0 * b.s1 - a.s1 * b.s0;{rest} return r;"
        )
    if name.endswith("normalize"):
        return kind.value, f"return a / L(sqrt)({total('a * a')});"
    expression = re.sub(r"\{sum\((.*)\)\}", lambda match: total(match[1]), _REDUCED[name])
    return kind.scalar, f"return {expression};"


def _any_or_all(name: str, kind: Type) -> tuple[str, str]:
    top = f">> {_BITS[kind.scalar] - 1} & 1"
    lanes = [f"(a.s{lane:x} {top})" for lane in range(kind.lanes)] if kind.lanes > 1 else [f"(a {top})"]
    return "int", f"return {(' | ' if name == 'any' else ' & ').join(lanes)};"


def _shuffle(name: str, kinds: tuple[Type, ...]) -> tuple[str, str]:
    source, mask = kinds[0], kinds[-1]
    result = Type(source.scalar, mask.lanes).value
    second = "b" if name == "shuffle2" else "a"
    letter = "c" if name == "shuffle2" else "b"
    count = source.lanes * (2 if name == "shuffle2" else 1)
    table = [
        f"{which}.s{lane:x}"
        for which in ("a", second)[: count // source.lanes]
        for lane in range(source.lanes)
    ]
    picked = " ".join(f"r.s{lane:x} = table[{letter}.s{lane:x} % {count}];" for lane in range(mask.lanes))
    return result, f"{source.scalar} table[] = {{{', '.join(table)}}}; {result} r; {picked} return r;"


def _with_pointer(name: str, kinds: tuple[Type, ...]) -> tuple[str, str] | None:
    first, pointer = kinds
    if first.lanes > 1:
        return None
    kind = first.scalar
    stored = f"touch_store((ulong)b, sizeof({pointer.value}));"
    bodies = {
        "sincos": "*b = L(cos)(a); return L(sin)(a);",
        "fract": f"{kind} w = L(floor)(a); *b = w; return a - w;",
        "modf": f"{kind} w = L(trunc)(a); *b = w; return a - w;",
        "frexp": "int e = a == 0 ? 0 : (int)L(logb)(a) + 1; *b = e; return L(ldexp)(a, -e);",
    }
    return kind, f"{stored} {bodies[name]}"


def _conversion(target: str, saturated: bool, rounding: str | None, kind: Type) -> tuple[str, str] | None:
    if target not in (*_BITS, "float", "double"):
        return None
    value = "a"
    if kind.scalar in ("float", "double") and target in _BITS:
        rounded = {"rte": "rint", "rtn": "floor", "rtp": "ceil"}.get(rounding or "rtz")
        value = f"L({rounded})(a)" if rounded else "a"
    if saturated and target in _BITS:
        bits = _BITS[target]
        low, high = (0, 2**bits - 1) if target[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        wide = kind.scalar if kind.scalar in ("float", "double") else "long"
        least, most = (f"(-{high}L - 1)", f"{high}L") if low < 0 else ("0L", f"{high}UL")
        value = (
            f"(({wide})({value}) <= ({wide}){least} ? ({target}){least} : "
            f"({wide})({value}) >= ({wide}){most} ? ({target}){most} : ({target})({value}))"
        )
    expression = f"({target})({value})"
    if kind.lanes == 1:
        return target, f"return {expression};"
    result = f"{target}{kind.lanes}"
    return result, _lanes(expression, (kind,), result)


def _vector_access(verb: str, lanes: int, kinds: tuple[Type, ...]) -> tuple[str, str]:
    pointer, scalar = kinds[-1], kinds[-1].scalar
    index = "a" if verb == "load" else "b"
    place = "b" if verb == "load" else "c"
    element = Type(scalar, space=pointer.space, constant=pointer.constant)
    start = f"{element} p = {place} + {index} * {lanes};"
    touched = f"touch_{verb}((ulong)p, {lanes} * sizeof({scalar}));"
    if verb == "load":
        kind = f"{scalar}{lanes}"
        moved = " ".join(f"r.s{lane:x} = p[{lane}];" for lane in range(lanes))
        return kind, f"{start} {touched} {kind} r; {moved} return r;"
    moved = " ".join(f"p[{lane}] = a.s{lane:x};" for lane in range(lanes))
    return "void", f"{start} {touched} {moved}"


def _copied_by_group(kinds: tuple[Type, ...]) -> tuple[str, str]:
    """A copy that a work-group makes together: its first work-item makes all of it, and those that wait for
    the event wait for each other (see `instrument.BARRIERS`)."""
    target, kind = kinds[0], kinds[0].value
    strided = len(kinds) == 5
    local = target.space == "__local"
    to, out = ("i", "i * d") if strided and local else ("i * d", "i") if strided else ("i", "i")
    event = "e" if strided else "d"
    return "ulong", (
        f"if (local_id(0) | local_id(1) | local_id(2)) return {event}; "
        f"for (ulong i = 0; i < c; i++) {{ touch_load((ulong)(b + {out}), sizeof({kind})); "
        f"touch_store((ulong)(a + {to}), sizeof({kind})); a[{to}] = b[{out}]; }} return {event};"
    )


def _atomic(verb: str, kinds: tuple[Type, ...]) -> tuple[str, str] | None:
    if verb == "work_item_fence":
        return "void", ""
    if not kinds or kinds[0].space is None:
        return None
    kind = kinds[0].scalar
    size = f"sizeof({kind})"
    match verb:
        case "load":
            return kind, f"touch_load((ulong)a, {size}); return *a;"
        case "store" | "init":
            return "void", f"touch_store((ulong)a, {size}); *a = b;"
        case "exchange":
            return kind, f"touch_update((ulong)a, {size}); {kind} old = *a; *a = b; return old;"
        case "compare_exchange_strong" | "compare_exchange_weak":
            return "bool", (
                f"touch_update((ulong)a, {size}); {kind} old = *a; "
                "if (old == *b) { *a = c; return true; } *b = old; return false;"
            )
    if verb not in _ATOMIC:
        return None
    return kind, f"touch_update((ulong)a, {size}); {kind} old = *a; *a = {_ATOMIC[verb]}; return old;"
