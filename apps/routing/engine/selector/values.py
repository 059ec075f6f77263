"""Functions and operators of the selector language for values of an item.

Each function has a bounded running time and raises ``TypeError`` or ``ValueError`` for a value
that it does not support; the selector then does not match, and the error is counted. No function
modifies a value.
"""

from __future__ import annotations

import math
from typing import Any, Final

import re2

# Maximum characters of a string that is converted to a number.
MAX_DIGITS: Final = 64
# Maximum characters of a string to search, and of one to copy.
MAX_SEARCHED: Final = 65_536
MAX_COPIED: Final = 16_384
# Limit of the worst-case cost of a search: instructions of the pattern times bytes of the text.
MAX_STEPS: Final = 100_000
MAX_PATTERN: Final = 200
MAX_INSTRUCTIONS: Final = 500
PATTERN_MEMORY_BYTES: Final = 256 * 1024

SCALARS: Final = frozenset({str, int, float, bool, type(None)})


class ValueTooLong(ValueError):
    """Value that exceeds a length limit."""


class Pattern:
    """Compiled RE2 expression, which is matched in linear time."""

    __slots__ = ("_expression", "most_bytes")

    def __init__(self, text: str) -> None:
        """Compile an expression. Raises ``ValueError`` with the reason if it is invalid."""
        if len(text) > MAX_PATTERN:
            raise ValueError(f"a pattern has at most {MAX_PATTERN} characters")
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = PATTERN_MEMORY_BYTES
        try:
            self._expression = re2.compile(text, options)
        except (re2.error, UnicodeEncodeError) as error:
            raise ValueError(_words(error)) from None
        size = self._expression.programsize
        if size > MAX_INSTRUCTIONS:
            raise ValueError("the pattern repeats too much")
        self.most_bytes = MAX_STEPS // max(size, 1)

    def found(self, text: Any) -> bool:
        """Return whether the pattern matches anywhere. Raises ``TypeError`` or ``ValueTooLong``."""
        if type(text) is not str:
            raise TypeError(f"matches() looks at a text, not at {kind(text)}")
        raw = text.encode()
        if len(raw) > self.most_bytes:
            raise ValueTooLong(f"this pattern looks at {self.most_bytes} bytes at most")
        return self._expression.search(raw) is not None


def part(base: Any, key: str | int) -> Any:
    """Return ``base[key]``; None if ``base`` is None or has no such key or index.

    Raises:
        TypeError: if ``base`` is not a dict, list or string, or the index is not an integer.
    """
    if base is None:
        return None
    if isinstance(base, dict):
        return base.get(key)
    if isinstance(base, list | tuple | str) and type(key) is int:
        return base[key] if -len(base) <= key < len(base) else None
    raise TypeError(f"{kind(base)} has no {key!r}")


def to_int(value: Any) -> int:
    """Convert a number, or a string that contains one, to an integer; fractions are cut off."""
    if isinstance(value, str) and len(value) > MAX_DIGITS:
        raise ValueTooLong(f"a number has at most {MAX_DIGITS} characters")
    if isinstance(value, str | int | float):
        return int(value)
    raise TypeError(f"int() takes a number or a text, not {kind(value)}")


def to_float(value: Any) -> float:
    """Convert a number or a string to a finite float."""
    if isinstance(value, str) and len(value) > MAX_DIGITS:
        raise ValueTooLong(f"a number has at most {MAX_DIGITS} characters")
    if not isinstance(value, str | int | float):
        raise TypeError(f"float() takes a number or a text, not {kind(value)}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("float() makes finite numbers only")
    return number


def to_text(value: Any) -> str:
    """Convert a string, number or boolean to a string."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    raise TypeError(f"str() takes a text or a number, not {kind(value)}")


def length(value: Any) -> int:
    """Return the number of characters, list entries or keys."""
    if isinstance(value, str | list | tuple | dict):
        return len(value)
    raise TypeError(f"len() takes a text, a list or a dictionary, not {kind(value)}")


def lower(value: Any) -> str:
    """Return the string in lower case."""
    if not isinstance(value, str):
        raise TypeError(f"lower() takes a text, not {kind(value)}")
    if len(value) > MAX_COPIED:
        raise ValueTooLong(f"lower() takes at most {MAX_COPIED} characters")
    return value.lower()


def startswith(value: Any, beginning: Any) -> bool:
    if not isinstance(value, str) or not isinstance(beginning, str):
        raise TypeError(f"startswith() takes texts, not {_other(value, beginning)}")
    return value.startswith(beginning)


def endswith(value: Any, ending: Any) -> bool:
    if not isinstance(value, str) or not isinstance(ending, str):
        raise TypeError(f"endswith() takes texts, not {_other(value, ending)}")
    return value.endswith(ending)


def contains(container: Any, value: Any) -> bool:
    """Return whether a string has a substring, a list an entry or a dictionary a key."""
    if isinstance(container, str):
        if not isinstance(value, str):
            raise TypeError(f"a text holds texts, not {kind(value)}")
        if len(container) > MAX_SEARCHED:
            raise ValueTooLong(f"a text is searched up to {MAX_SEARCHED} characters")
        return value in container
    if isinstance(container, list | tuple | dict):
        return value in container
    raise TypeError(f"{kind(container)} holds nothing")


def within(value: Any, container: Any) -> bool:
    """Return ``value in container`` for a container from the item."""
    return contains(container, value)


def kind(value: Any) -> str:
    """Return the type of a value in words for error messages."""
    words: dict[type, str] = {
        dict: "a dictionary",
        list: "a list",
        tuple: "a list",
        str: "a text",
        bool: "a truth value",
        type(None): "nothing",
    }
    return words.get(type(value), "a number")


def _other(first: Any, second: Any) -> str:
    return kind(second if isinstance(first, str) else first)


def _words(error: Exception) -> str:
    reason = error.args[0] if isinstance(error, re2.error) and error.args else "no UTF-8"
    text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    return text[:200]
