"""Conditions on configurations: an expression over the parameters, or a function of them, as one callable."""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from apportion.errors import InvalidSetting

Condition = str | Callable[..., Any]
"""`"block_x * block_y <= 1024"`, a function of parameters by name (`lambda block_x, block_y: …`, or
`lambda **one: …`), or one of the whole configuration (`lambda one: …`)."""

_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Not: operator.not_, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs, "int": int, "float": float}


def condition_of(condition: Condition, names: Collection[str]) -> Callable[[Mapping[str, Any]], bool]:
    """What says of a configuration whether it meets a condition.

    Args:
        names: the parameters that there are.

    Raises:
        InvalidSetting: it is neither an expression nor a function, or names something that is no parameter.
    """
    if isinstance(condition, str):
        tree = _parsed(condition, names)
        return lambda one: bool(_value(tree, one, condition))
    if not callable(condition):
        raise InvalidSetting(f"A condition is an expression or a function, not {condition!r}")
    wanted = _keywords_of(condition, names)
    if wanted:
        return lambda one: bool(condition(**{name: one[name] for name in wanted}))
    return lambda one: bool(condition(one))


def number_from(expression: str, one: Mapping[str, Any]) -> Any:
    """The value of an expression over the parameters of a configuration, such as `"size // tile"`.

    Raises:
        InvalidSetting: it is no expression over them.
    """
    return _value(_parsed(expression, one), one, expression)


def _parsed(text: str, names: Collection[str]) -> ast.expr:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise InvalidSetting(f"{text!r} is no expression: {error.msg}") from error
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Name)
            and node.id not in names
            and node.id not in (*_FUNCTIONS, "true", "false")
        ):
            raise InvalidSetting(f"{text!r} names {node.id!r}, which is none of {', '.join(names)}")
    return tree


def _value(node: ast.expr, one: Mapping[str, Any], text: str) -> Any:
    def of(child: ast.expr) -> Any:
        return _value(child, one, text)

    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return one[node.id] if node.id in one else {"true": True, "false": False}[node.id]
        case ast.Tuple() | ast.List() | ast.Set():
            return [of(child) for child in node.elts]
        case ast.UnaryOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](of(node.operand))
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](of(node.left), of(node.right))
        case ast.BoolOp(op=ast.And()):
            return all(of(child) for child in node.values)
        case ast.BoolOp():
            return any(of(child) for child in node.values)
        case ast.Compare():
            left = of(node.left)
            for op, right in zip(node.ops, map(of, node.comparators), strict=True):
                if not _OPERATORS[type(op)](left, right):
                    return False
                left = right
            return True
        case ast.IfExp():
            return of(node.body) if of(node.test) else of(node.orelse)
        case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS and not node.keywords:
            return _FUNCTIONS[name](*map(of, node.args))
    raise InvalidSetting(
        f"{text!r} holds {ast.unparse(node)!r}: only numbers, parameters and arithmetic may stand there"
    )


def _keywords_of(function: Callable[..., Any], names: Collection[str]) -> list[str]:
    """The parameters that a function takes by name; none where it takes the whole configuration."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    if any(one.kind in (one.VAR_POSITIONAL, one.POSITIONAL_ONLY) for one in found):
        return []
    named = [one for one in found if one.kind is not one.VAR_KEYWORD]
    needed = [one.name for one in named if one.default is one.empty]
    unknown = [name for name in needed if name not in names]
    if unknown and len(needed) > 1:
        raise InvalidSetting(f"A condition takes {unknown[0]!r}, which is none of {', '.join(names)}")
    if unknown:
        return []
    wanted = [one.name for one in named if one.name in names]
    takes_any = len(named) < len(found)
    return list(names) if takes_any else wanted
