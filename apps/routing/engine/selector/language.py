"""Parser of the selector language, a subset of Python expressions.

    task_type == '找新' and province in ['JS', 'TJ'] and not task_params['retry']   # a comment

- Operators: ``== != < <= > >=``, also chained; ``in``, ``not in``; ``and``, ``or``, ``not``;
  parentheses.
- Literals: strings, also ``r'...'``, integers, decimal numbers, ``True``, ``False``, ``None``, and
  lists of them. A tuple is read as a list.
- Names are keys of the item. Nested values: ``part['key']``, ``part[0]``, ``part[-1]``, to any
  allowed depth.
- Functions: ``int() float() str() len() lower() startswith() endswith() contains() matches()``.
  The pattern of ``matches(text, pattern)`` is an RE2 expression that may match anywhere in the
  text.

Missing values and errors:

- A missing name or key evaluates to ``None``: ``not detail_url`` is true, ``x == 'GD'`` is false
  and ``x != 'GD'`` is true.
- A type error (``None < 3``, ``int('x')``, ``'a' in 5``, a string that is too long) ends the
  evaluation: the selector does not match, even if the error is inside ``not``, and the error is
  counted. Parts after a short circuit are not evaluated and raise no error: ``a == 1 or
  int(b) == 1`` matches if ``a`` is 1, whatever ``b`` is.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from apps.routing.engine.selector.errors import SelectorError
from apps.routing.engine.selector.scanner import scan
from apps.routing.engine.selector.tree import (
    MEMBERSHIPS,
    Both,
    Call,
    Compare,
    Constant,
    Name,
    Node,
    Not,
    Part,
)
from apps.routing.engine.selector.values import Pattern

MAX_DEPTH: Final = 20
MAX_NODES: Final = 300
# Limit of the estimated worst-case time of a selector for the largest item, in units of 0.1 ms.
MAX_COST: Final = 100
_COST_OF_ITEM_VALUES: Final = 10
_MOST_NUMBER: Final = 2**63

# Name: number of arguments, and worst-case time of a call in units of 0.1 ms.
FUNCTIONS: Final[dict[str, tuple[int, int]]] = {
    "int": (1, 0),
    "float": (1, 0),
    "str": (1, 0),
    "len": (1, 0),
    "lower": (1, 4),
    "startswith": (2, 1),
    "endswith": (2, 1),
    "contains": (2, 10),
    "matches": (2, 25),
}
_OPERATORS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


@dataclass(slots=True, eq=False)
class Parsed:
    """Valid selector: its text and its tree."""

    text: str
    root: Node

    def span(self, node: Node) -> tuple[int, int]:
        """Return the start and end offset of a node, in characters. The end is exclusive."""
        at = node.at
        if at is None:
            raise ValueError("this selector was read without its places")
        start = offset_of(self.text, at.lineno, at.col_offset)
        return start, offset_of(self.text, at.end_lineno or 1, at.end_col_offset or 0)


def parse(text: str, *, places: bool = True) -> Parsed:
    """Parse and validate a selector. Without ``places``, nodes have no positions in the text.

    Raises:
        SelectorError: if the text is not a valid selector.
    """
    if not isinstance(text, str):
        raise SelectorError("not_text", "a selector must be a string", 0)
    scan(text)
    try:
        # In parentheses, it may span several lines. The scanner checked that brackets balance.
        tree = ast.parse(f"({text}\n)", mode="eval")
    except SyntaxError as error:
        _misplaced(text, error)
    except (ValueError, MemoryError, RecursionError):
        raise SelectorError("syntax", "this is not valid syntax", 0) from None
    return Parsed(text, _Reader(text, places).whole(tree.body))


def offset_of(text: str, line: int, column: int) -> int:
    """Convert a position of Python's tree, a line and a column in UTF-8 bytes, to characters."""
    start = 0
    if line == 1:
        # Minus the inserted parenthesis. A tuple without parentheses starts at it, hence max().
        column = max(0, column - 1)
    else:
        starts = [0, *(end.end() for end in _LINE_END.finditer(text))]
        start = starts[min(line, len(starts)) - 1]
    if text.isascii():
        return min(start + column, len(text))
    rest = text[start : start + column].encode()
    return start + len(rest[:column].decode("utf-8", "ignore"))


class _Reader:
    """Validates Python's tree and converts it to the tree of the selector language."""

    def __init__(self, text: str, places: bool) -> None:
        self._text = text
        self._places = places
        self._nodes = 0
        self._cost = 0

    def whole(self, body: ast.expr) -> Node:
        root = self._read(body, 1)
        if isinstance(root, Constant) and not isinstance(root.value, bool):
            self._refuse("constant", "this always has the same result; write True or False", body)
        return root

    def _read(self, node: ast.expr, depth: int) -> Node:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._refuse("too_long", f"a selector has at most {MAX_NODES} parts", node)
        if depth > MAX_DEPTH:
            self._refuse("too_deep", f"the selector is nested more than {MAX_DEPTH} deep", node)
        reader = _READERS.get(type(node))
        if reader is None:
            self._refuse("not_allowed", "this is not supported in selectors", node)
        return reader(self, node, depth)

    def _at(self, node: ast.expr) -> ast.expr | None:
        return node if self._places else None

    def _name(self, node: ast.Name, depth: int) -> Node:
        if node.id in FUNCTIONS:
            self._refuse("function", f"{node.id} is a function; call it as {node.id}(...)", node)
        return Name(self._at(node), node.id)

    def _both(self, node: ast.BoolOp, depth: int) -> Node:
        word = "and" if isinstance(node.op, ast.And) else "or"
        operands = [self._read(value, depth + 1) for value in node.values]
        return Both(self._at(node), word, operands)

    def _unary(self, node: ast.UnaryOp, depth: int) -> Node:
        if isinstance(node.op, ast.Not):
            return Not(self._at(node), self._read(node.operand, depth + 1))
        value = self._value(node.operand) if isinstance(node.operand, ast.Constant) else None
        wrong = isinstance(value, bool) or not isinstance(value, int | float)
        if wrong or value is None or not isinstance(node.op, ast.USub):
            self._refuse("sign", "the only unary operator is -, before a number", node)
        return Constant(self._at(node), -value)

    def _constant(self, node: ast.Constant, depth: int) -> Node:
        return Constant(self._at(node), self._value(node))

    def _value(self, node: ast.Constant) -> Any:
        value = node.value
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            control = _CONTROL.search(value)
            if control is not None:
                self._refuse(
                    "character", f"a string cannot contain U+{ord(control.group()):04X}", node
                )
            return value
        if isinstance(value, int) and abs(value) < _MOST_NUMBER:
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        return self._refuse("number", "numbers have at most 64 bits", node)

    def _list(self, node: ast.List | ast.Tuple, depth: int) -> Node:
        values: list[Any] = []
        for elt in node.elts:
            part = self._read(elt, depth + 1)
            if not isinstance(part, Constant):
                self._refuse(
                    "list", "a list may contain only strings, numbers, True, False and None", elt
                )
            values.append(part.value)
        return Constant(self._at(node), values)

    def _compare(self, node: ast.Compare, depth: int) -> Node:
        operators = [_OPERATORS.get(type(operator), "") for operator in node.ops]
        operands = [self._read(operand, depth + 1) for operand in (node.left, *node.comparators)]
        if "" in operators:
            self._refuse("sign", "this comparison is not supported", node)
        if len(operators) > 1 and not MEMBERSHIPS.isdisjoint(operators):
            self._refuse("chain", "in cannot be chained with other comparisons; use and", node)
        for number, operator in enumerate(operators):
            left, right = operands[number], operands[number + 1]
            if operator in MEMBERSHIPS:
                self._container(right, node.comparators[number])
            if not isinstance(right, Constant) and (
                operator in MEMBERSHIPS or not isinstance(left, Constant)
            ):
                self._spend(_COST_OF_ITEM_VALUES, node.comparators[number])
        return Compare(self._at(node), operands, operators)

    def _container(self, node: Node, at: ast.expr) -> None:
        wrong = isinstance(node, Not | Both | Compare)
        if wrong or (isinstance(node, Constant) and not isinstance(node.value, str | list)):
            self._refuse("container", "in needs a list or a string on its right", at)

    def _part(self, node: ast.Subscript, depth: int) -> Node:
        base = self._read(node.value, depth + 1)
        if not isinstance(base, Name | Part):
            self._refuse("subscript", "only keys of the task can be indexed", node)
        key = self._read(node.slice, depth + 1)
        if not isinstance(key, Constant) or type(key.value) not in (str, int):
            self._refuse("subscript", "an index must be a string or an integer", node.slice)
        return Part(self._at(node), base, key.value)

    def _call(self, node: ast.Call, depth: int) -> Node:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            self._refuse("function", f"unknown function; available: {known}", node.func)
        count, cost = FUNCTIONS[name]
        if node.keywords or len(node.args) != count:
            self._refuse("arguments", f"{name}() takes {count} positional argument(s)", node)
        self._spend(cost, node)
        arguments = [self._read(arg, depth + 1) for arg in node.args]
        pattern = self._pattern(node, arguments[1]) if name == "matches" else None
        return Call(self._at(node), name, arguments, pattern)

    def _pattern(self, node: ast.Call, argument: Node) -> Pattern:
        if not isinstance(argument, Constant) or not isinstance(argument.value, str):
            self._refuse("pattern", "the pattern of matches() must be a string", node.args[1])
        try:
            return Pattern(argument.value)
        except ValueError as error:
            return self._refuse("pattern", f"invalid regular expression: {error}", node.args[1])

    def _spend(self, cost: int, node: ast.expr) -> None:
        self._cost += cost
        if self._cost > MAX_COST:
            self._refuse(
                "too_slow", "this selector is too expensive; split it into two selectors", node
            )

    def _refuse(self, code: str, words: str, node: ast.expr) -> NoReturn:
        raise SelectorError(code, words, offset_of(self._text, node.lineno, node.col_offset))


_READERS: Final[dict[type[ast.expr], Callable[[_Reader, Any, int], Node]]] = {
    ast.Name: _Reader._name,
    ast.Constant: _Reader._constant,
    ast.Compare: _Reader._compare,
    ast.BoolOp: _Reader._both,
    ast.Subscript: _Reader._part,
    ast.Call: _Reader._call,
    ast.List: _Reader._list,
    ast.Tuple: _Reader._list,
    ast.UnaryOp: _Reader._unary,
}


def _misplaced(text: str, error: SyntaxError) -> NoReturn:
    starts = [0, *(end.end() for end in _LINE_END.finditer(text))]
    line, column = error.lineno or 1, (error.offset or 1) - 1
    # The parenthesis before the first line and the line after the last one were inserted.
    offset = len(text) if line > len(starts) else starts[line - 1] + column - (line == 1)
    offset = max(0, min(offset, len(text)))
    if not text[offset:].strip(" \t\r\n"):
        raise SelectorError("syntax", "unexpected end of the selector", len(text)) from None
    raise SelectorError("syntax", "unexpected token", offset) from None
