"""JMESPath expressions on records and answers."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any, Final

from yardkit.errors import first_line

# Imported by name: the library brings no types.
_jmespath: Final[Any] = importlib.import_module("jmespath")
_Error: Final[type[Exception]] = importlib.import_module("jmespath.exceptions").JMESPathError


class BadPath(ValueError):
    """The text is no expression."""


@lru_cache(maxsize=512)
def compiled(text: str) -> Any:
    """The expression. Raises ``BadPath``."""
    try:
        return _jmespath.compile(text)
    except _Error as error:
        # The further lines are the expression and a pointer into it, which one line cannot hold.
        first = first_line(error)
        raise BadPath(first.removesuffix(", for expression:")) from None


def find(text: str, value: Any) -> Any:
    """What the expression finds, None where nothing is; a plain name is looked up at once."""
    if isinstance(value, dict) and text in value:
        # Chinese names of fields need no quotes this way, and most paths are a name.
        return value[text]
    try:
        return compiled(text).search(value)
    except _Error:
        # Such as a function on a value of another type: nothing is found there.
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
