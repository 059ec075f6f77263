"""What selectors mean, by the book: slow, obvious, written anew for the tests alone.

Walks Python's own tree with Python's own operators. And hypothesis strategies for selectors of the
language, for items, and for rule sets that share keys and values as real ones do.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import re2
from hypothesis import strategies as st

Item = Mapping[str, Any]

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def holds(text: str, item: Item) -> bool | None:
    """Return whether the item matches; None for a type error."""
    try:
        return bool(value_of(ast.parse(text.strip(), mode="eval").body, item))
    except Exception:  # noqa: BLE001 - of a type error, by the book
        return None


def first(rules: Sequence[tuple[str, Sequence[str]]], item: Item) -> int | None:
    """Return the first rule with a matching selector by trying all."""
    return next(iter(every(rules, item)), None)


def every(rules: Sequence[tuple[str, Sequence[str]]], item: Item) -> list[int]:
    """Return all rules with a matching selector."""
    return [n for n, (_, texts) in enumerate(rules) if any(holds(one, item) for one in texts)]


def value_of(node: ast.expr, item: Item) -> Any:
    """Return the value of a part. Raises whatever Python raises."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return item.get(node.id)
        case ast.List() | ast.Tuple():
            return [value_of(one, item) for one in node.elts]
        case ast.UnaryOp(op=ast.Not()):
            return not value_of(node.operand, item)
        case ast.UnaryOp():
            return -value_of(node.operand, item)
        case ast.BoolOp():
            ends = isinstance(node.op, ast.Or)
            for one in node.values:
                value = value_of(one, item)
                if bool(value) is ends:
                    break
            return value
        case ast.Compare():
            left = value_of(node.left, item)
            for comparison, right_node in zip(node.ops, node.comparators, strict=True):
                right = value_of(right_node, item)
                found = COMPARISONS[type(comparison)](left, right)
                if not found:
                    return found
                left = right
            return found
        case ast.Subscript():
            return _part(value_of(node.value, item), value_of(node.slice, item))
        case ast.Call(func=ast.Name(id=name)):
            return FUNCTIONS[name](*[value_of(one, item) for one in node.args])
    raise AssertionError(ast.dump(node))


def _part(base: Any, key: Any) -> Any:
    if base is None:
        return None
    try:
        return base[key]
    except (KeyError, IndexError):
        return None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, str) and len(value) > 64:
        raise ValueError("too long")
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, list | dict):
        raise TypeError("no scalar")
    return str(value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "int": lambda value: int(_number(value)),
    "float": lambda value: _finite(float(_number(value))),
    "str": _scalar,
    "len": len,
    "lower": lambda value: _text(value).lower(),
    "startswith": lambda value, other: _text(value).startswith(_text(other)),
    "endswith": lambda value, other: _text(value).endswith(_text(other)),
    "contains": lambda container, value: value in container,
    "matches": lambda value, pattern: re2.search(pattern, _text(value)) is not None,
}

# Few of each, so that rules and items meet; among them what is equal and not the same.
KEYS = ("a", "b", "c", "task_type", "省份")
PARTS = ("x", "省份")
TEXTS = ("", "1", "11", " 2 ", "x", "GD", "广东", "it's", 'a"b\\')
NUMBERS = (0, 1, 2, 11, -1, 1.0, 2.5, -0.0, True, False, None)

constants = st.sampled_from([*TEXTS, *NUMBERS])
lists = st.lists(st.one_of(constants, st.lists(constants, max_size=2)), max_size=12)
names = st.sampled_from(KEYS)
paths = st.one_of(
    names,
    st.builds(lambda name, part: f"{name}[{part!r}]", names, st.sampled_from([*PARTS, 0, -1, 5])),
    st.builds(lambda name, part: f"{name}['x'][{part!r}]", names, st.sampled_from([*PARTS, 1])),
)
keys = st.one_of(paths, paths, st.builds("int({})".format, paths))
values = st.one_of(
    keys,
    st.builds("{}({})".format, st.sampled_from(["float", "str", "len", "lower"]), paths),
    constants.map(repr),
)
# What the index understands.
asked = st.one_of(
    st.builds("{} == {!r}".format, keys, constants),
    st.builds("{!r} == {}".format, constants, keys),
    st.builds("{} in {!r}".format, keys, lists),
)
conditions = st.one_of(
    asked,
    asked,
    st.builds(
        "{} {} {}".format, values, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), values
    ),
    st.builds("{} not in {!r}".format, keys, lists),
    st.builds("lower({}) == {!r}".format, paths, st.sampled_from(["gd", "x", "1"])),
    st.builds("{!r} in {}".format, constants, paths),
    st.builds("{} < {} <= {}".format, values, values, values),
    st.builds(
        "{}({}, {!r})".format,
        st.sampled_from(["startswith", "endswith", "contains"]),
        paths,
        constants,
    ),
    st.builds("matches({}, {!r})".format, paths, st.sampled_from(["^1+$", "东", r"\d"])),
    paths,
    st.sampled_from(["True", "False"]),
)
selectors = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("(not {})".format, inner),
    ),
    max_leaves=5,
)
# Of so many selectors that they are indexed, mostly.
rule_sets = st.lists(
    st.lists(selectors, min_size=1, max_size=3).map(lambda texts: ("rule", texts)),
    min_size=3,
    max_size=8,
)
scalars = st.one_of(constants, st.sampled_from([float("nan"), "x" * 65, "１", 10**18]))
inner_values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*PARTS, "1"]), inner, max_size=3),
    ),
    max_leaves=4,
)
items = st.dictionaries(names, st.one_of(scalars, inner_values), max_size=5)
