"""JMESPath expressions on records and answers."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any, Final

from yardkit.errors import first_line

# Not ``import jmespath``: the library has no type hints.
_jmespath: Final[Any] = importlib.import_module("jmespath")
_Error: Final[type[Exception]] = importlib.import_module("jmespath.exceptions").JMESPathError


# Limit of our own: jmespath accepts any length.
MOST_CHARACTERS: Final = 1000
# How much an expression may multiply a response: ten doublings in a row are a factor of a thousand.
_MOST_GROWTH: Final = 100
_LISTS: Final = ("multi_select_list", "multi_select_dict")


class BadPath(ValueError):
    """The expression is invalid."""


@lru_cache(maxsize=512)
def compiled(text: str) -> Any:
    """Compile an expression. Raises ``BadPath``."""
    if len(text) > MOST_CHARACTERS:
        raise BadPath(f"at most {MOST_CHARACTERS} characters")
    try:
        expression = _jmespath.compile(text)
    except _Error as error:
        # Further lines repeat the expression with a pointer, which does not fit into one line.
        first = first_line(error)
        raise BadPath(first.removesuffix(", for expression:")) from None
    except RecursionError:
        raise BadPath("nested too deep") from None
    except (ValueError, TypeError, AttributeError):
        # Errors that jmespath does not wrap, such as a number with thousands of digits.
        raise BadPath("invalid part") from None
    if _growth(expression.parsed) > _MOST_GROWTH:
        raise BadPath("may multiply the response too much")
    return expression


def _growth(tree: Any) -> int:
    growth, waiting = 1, [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict) and "type" in node:
            growth *= max(1, len(node["children"])) if node["type"] in _LISTS else 1
            waiting += node.get("children", [])
    return growth


def find(text: str, value: Any) -> Any:
    """Evaluate an expression; None if there is no match. Plain names are looked up directly."""
    if isinstance(value, dict) and text in value:
        # Chinese field names thus need no quotes, and most paths are plain names.
        return value[text]
    try:
        return compiled(text).search(value)
    except (_Error, RecursionError, ValueError, TypeError, AttributeError, ArithmeticError):
        # Such as a function on a value of the wrong type: no match. Functions raise various
        # exceptions.
        return None


def problem(text: str) -> str:
    """Return what is wrong with the expression; "" if it is valid."""
    if text.isidentifier():
        return ""
    try:
        compiled(text)
    except BadPath as error:
        return f"invalid JMESPath: {error}"
    return ""
