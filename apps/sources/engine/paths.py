"""JMESPath expressions on records and answers."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any, Final

from yardkit.errors import first_line

# Imported by name: the library brings no types.
_jmespath: Final[Any] = importlib.import_module("jmespath")
_Error: Final[type[Exception]] = importlib.import_module("jmespath.exceptions").JMESPathError


# Longer ones are none of ours; jmespath itself looks at whatever it is given.
MOST_CHARACTERS: Final = 1000
# What an expression may multiply an answer by: ten doublings in a row are a thousand of them.
_MOST_GROWTH: Final = 100
_LISTS: Final = ("multi_select_list", "multi_select_dict")


class BadPath(ValueError):
    """The text is no expression."""


@lru_cache(maxsize=512)
def compiled(text: str) -> Any:
    """The expression. Raises ``BadPath``."""
    if len(text) > MOST_CHARACTERS:
        raise BadPath(f"at most {MOST_CHARACTERS} characters")
    try:
        found = _jmespath.compile(text)
    except _Error as error:
        # The further lines are the expression and a pointer into it, which one line cannot hold.
        first = first_line(error)
        raise BadPath(first.removesuffix(", for expression:")) from None
    except RecursionError:
        raise BadPath("it is nested too deep") from None
    except (ValueError, TypeError, AttributeError):
        # What jmespath makes none of its own errors of, such as a number of thousands of digits.
        raise BadPath("a part of it cannot be read") from None
    if _growth(found.parsed) > _MOST_GROWTH:
        raise BadPath("it may make too much of an answer")
    return found


def _growth(tree: Any) -> int:
    growth, waiting = 1, [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict) and "type" in node:
            growth *= max(1, len(node["children"])) if node["type"] in _LISTS else 1
            waiting += node.get("children", [])
    return growth


def find(text: str, value: Any) -> Any:
    """What the expression finds, None where nothing is; a plain name is looked up at once."""
    if isinstance(value, dict) and text in value:
        # Chinese names of fields need no quotes this way, and most paths are a name.
        return value[text]
    try:
        return compiled(text).search(value)
    except (_Error, RecursionError, ValueError, TypeError, AttributeError, ArithmeticError):
        # Such as a function on a value of another type: nothing is found there. Its functions fail
        # in ways of their own.
        return None


def problem(text: str) -> str:
    """What is wrong with the expression, "" when nothing is."""
    if text.isidentifier():
        return ""
    try:
        compiled(text)
    except BadPath as error:
        return f"no JMESPath: {error}"
    return ""
