"""Why a selector fits an item, or why not: its parts with their values, for a page.

Walks the tree, which the compiled function does not, and so also says what the function must say.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from apps.routing.engine.selecting import values
from apps.routing.engine.selecting.language import Parsed
from apps.routing.engine.selecting.tree import (
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


class State(StrEnum):
    """What became of a part."""

    TRUE = "true"
    FALSE = "false"
    # A type error: the whole selector does not match.
    ERROR = "error"
    # The item has no such name or key; its value is None.
    MISSING = "missing"
    # What came before had decided.
    NOT_LOOKED_AT = "not_looked_at"


@dataclass(slots=True)
class Explained:
    """A part of a selector and what it was for one item."""

    text: str
    offset: int
    state: State = State.NOT_LOOKED_AT
    # As one would write it in a selector, shortened.
    value: str | None = None
    # Of an error: what was wrong.
    note: str = ""
    parts: list[Explained] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "text": self.text,
            "offset": self.offset,
            "state": self.state.value,
            "value": self.value,
            "note": self.note,
            "parts": [one.as_dict() for one in self.parts],
        }


@dataclass(slots=True)
class Explanation:
    """A selector, whether an item fits, and why."""

    selector: str
    matches: bool
    tree: Explained
    # The type error that ended it, and where.
    error: str = ""
    error_offset: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "selector": self.selector,
            "matches": self.matches,
            "error": self.error,
            "error_offset": self.error_offset,
            "tree": self.tree.as_dict(),
        }


def explain(parsed: Parsed, item: Mapping[str, Any]) -> Explanation:
    """Look at every part of a selector that the item makes it look at."""
    walk = _Walk(parsed, item)
    tree = walk.outline(parsed.root)
    try:
        matches = bool(walk.value(parsed.root, tree))
    except _Ended:
        matches = False
    return Explanation(parsed.text, matches, tree, walk.error, walk.error_offset)


class _Ended(Exception):
    """A type error: nothing more is looked at."""


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
    """One look at one item."""

    def __init__(self, parsed: Parsed, item: Mapping[str, Any]) -> None:
        self._parsed = parsed
        self._item = item
        self.error = ""
        self.error_offset: int | None = None

    def outline(self, node: Node) -> Explained:
        """The part and its parts, none looked at. Constants speak for themselves."""
        start, end = self._parsed.span(node)
        inner = [one for one in children(node) if not isinstance(one, Constant)]
        return Explained(
            self._parsed.text[start:end], start, parts=[self.outline(one) for one in inner]
        )

    def value(self, node: Node, told: Explained) -> Any:
        """Return the value of a part; its explanation is written into ``told``."""
        parts = iter(told.parts)
        try:
            found, state = self._look(node, parts)
            told.state = state or (State.TRUE if found else State.FALSE)
        except _Ended:
            told.state = State.ERROR
            raise
        except Exception as error:  # noqa: BLE001 - whatever an item holds is told
            told.state, told.note = State.ERROR, _words(error)
            self.error, self.error_offset = told.note, told.offset
            raise _Ended from None
        told.value = shown(found)
        return found

    def _look(self, node: Node, parts: Any) -> tuple[Any, State | None]:
        def look(one: Node) -> Any:
            return one.value if isinstance(one, Constant) else self.value(one, next(parts))

        match node:
            case Constant():
                return node.value, None
            case Name():
                return self._item.get(node.key), None if node.key in self._item else State.MISSING
            case Part():
                base = look(node.base)
                found = values.part(base, node.key)
                return found, None if _has(base, node.key) else State.MISSING
            case Not():
                return not look(node.operand), None
            case Both():
                found = look(node.operands[0])
                for operand in node.operands[1:]:
                    if bool(found) is (node.word == "or"):
                        break
                    found = look(operand)
                return found, None
            case Compare():
                return self._compare(node, look), None
            case Call():
                if node.pattern is not None:
                    return node.pattern.found(look(node.arguments[0])), None
                arguments = [look(one) for one in node.arguments]
                return _FUNCTIONS[node.function](*arguments), None

    @staticmethod
    def _compare(node: Compare, look: Callable[[Node], Any]) -> Any:
        left, found = look(node.operands[0]), None
        for word, operand in zip(node.operators, node.operands[1:], strict=True):
            right = look(operand)
            found = _COMPARISONS[word](left, right)
            if not found:
                break
            left = right
        return found


def shown(value: Any) -> str:
    """A value as one would write it, at most ``MAX_VALUE`` characters."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = MAX_VALUE - 20
    short.maxlist = short.maxdict = short.maxtuple = 4
    short.maxlevel = 2
    try:
        text = short.repr(value)
    except Exception:  # noqa: BLE001 - a value that cannot even be shown
        text = values.kind(value)
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1] + "…"


def _has(base: Any, key: str | int) -> bool:
    if isinstance(base, dict):
        return key in base
    return isinstance(base, list | tuple | str) and -len(base) <= int(key) < len(base)


def _words(error: Exception) -> str:
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even be shown
        words = ""
    return (words or type(error).__name__)[: 2 * MAX_VALUE]
