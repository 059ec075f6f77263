"""Explanation of why a selector matches an item or not: the values of its parts, for display.

Evaluates the tree directly, so it also serves as the reference for the compiled functions.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from apps.routing.engine.selector import values
from apps.routing.engine.selector.language import Parsed
from apps.routing.engine.selector.tree import (
    Both,
    Call,
    Compare,
    Constant,
    Name,
    Node,
    Not,
    Part,
    children,
)

MAX_VALUE: Final = 100


class PartState(StrEnum):
    """Result of evaluating a part of a selector."""

    TRUE = "true"
    FALSE = "false"
    # A type error: the whole selector does not match.
    ERROR = "error"
    # The item has no such key; the value is None.
    MISSING = "missing"
    # Skipped because the parts before it decided the result.
    NOT_LOOKED_AT = "not_looked_at"


@dataclass(slots=True)
class PartExplanation:
    """Part of a selector with its value for one item."""

    text: str
    offset: int
    state: PartState = PartState.NOT_LOOKED_AT
    # Formatted as in a selector, at most MAX_VALUE characters; None if there is no value.
    value: str | None = None
    # Message of a type error, otherwise "".
    note: str = ""
    parts: list[PartExplanation] = field(default_factory=list)


@dataclass(slots=True)
class Explanation:
    """Explanation of whether a selector matches one item."""

    selector: str
    matches: bool
    tree: PartExplanation
    # Message of the type error that ended the evaluation, and its position in characters.
    error: str = ""
    error_offset: int | None = None


def explain(parsed: Parsed, item: Mapping[str, Any]) -> Explanation:
    """Evaluate a selector for an item and record the result of each part that is evaluated."""
    walk = _Walk(parsed, item)
    tree = walk.outline(parsed.root)
    try:
        matches = bool(walk.value(parsed.root, tree))
    except _Ended:
        matches = False
    return Explanation(parsed.text, matches, tree, walk.error, walk.error_offset)


class _Ended(Exception):
    """Type error that ends the evaluation."""


_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": values.within,
    "not in": lambda value, container: not values.within(value, container),
}
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "int": values.to_int,
    "float": values.to_float,
    "str": values.to_text,
    "len": values.length,
    "lower": values.lower,
    "startswith": values.startswith,
    "endswith": values.endswith,
    "contains": values.contains,
}


class _Walk:
    """Evaluation of one selector for one item."""

    def __init__(self, parsed: Parsed, item: Mapping[str, Any]) -> None:
        self._parsed = parsed
        self._item = item
        self.error = ""
        self.error_offset: int | None = None

    def outline(self, node: Node) -> PartExplanation:
        """Return the tree of parts, without constants, before the evaluation."""
        start, end = self._parsed.span(node)
        inner = [child for child in children(node) if not isinstance(child, Constant)]
        return PartExplanation(
            self._parsed.text[start:end], start, parts=[self.outline(operand) for operand in inner]
        )

    def value(self, node: Node, explanation: PartExplanation) -> Any:
        """Evaluate a part, record the result in its explanation and return the value."""
        parts = iter(explanation.parts)
        try:
            present, state = self._look(node, parts)
            explanation.state = state or (PartState.TRUE if present else PartState.FALSE)
        except _Ended:
            explanation.state = PartState.ERROR
            raise
        except Exception as error:  # noqa: BLE001 - any error is recorded
            explanation.state, explanation.note = PartState.ERROR, _words(error)
            self.error, self.error_offset = explanation.note, explanation.offset
            raise _Ended from None
        explanation.value = shown(present)
        return present

    def _look(self, node: Node, parts: Any) -> tuple[Any, PartState | None]:
        def look(one: Node) -> Any:
            return one.value if isinstance(one, Constant) else self.value(one, next(parts))

        match node:
            case Constant():
                return node.value, None
            case Name():
                return self._item.get(
                    node.key
                ), None if node.key in self._item else PartState.MISSING
            case Part():
                base = look(node.base)
                present = values.part(base, node.key)
                return present, None if _has(base, node.key) else PartState.MISSING
            case Not():
                return not look(node.operand), None
            case Both():
                present = look(node.operands[0])
                for operand in node.operands[1:]:
                    if bool(present) is (node.word == "or"):
                        break
                    present = look(operand)
                return present, None
            case Compare():
                return self._compare(node, look), None
            case Call():
                if node.pattern is not None:
                    return node.pattern.found(look(node.arguments[0])), None
                arguments = [look(argument) for argument in node.arguments]
                return _FUNCTIONS[node.function](*arguments), None

    @staticmethod
    def _compare(node: Compare, look: Callable[[Node], Any]) -> Any:
        left, right_value = look(node.operands[0]), None
        for word, operand in zip(node.operators, node.operands[1:], strict=True):
            right = look(operand)
            right_value = _COMPARISONS[word](left, right)
            if not right_value:
                break
            left = right
        return right_value


def shown(value: Any) -> str:
    """Format a value as in a selector, shortened to ``MAX_VALUE`` characters."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = MAX_VALUE - 20
    short.maxlist = short.maxdict = short.maxtuple = 4
    short.maxlevel = 2
    try:
        text = short.repr(value)
    except Exception:  # noqa: BLE001 - repr() may raise anything
        text = values.kind(value)
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1] + "…"


def _has(base: Any, key: str | int) -> bool:
    if isinstance(base, dict):
        return key in base
    return isinstance(base, list | tuple | str) and -len(base) <= int(key) < len(base)


def _words(error: Exception) -> str:
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - str() may raise anything
        words = ""
    return (words or type(error).__name__)[: 2 * MAX_VALUE]
