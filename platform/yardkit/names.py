"""Rules of names and characters that more than one package checks.

Patterns of names are for ``fullmatch``, those of characters for ``search``.
"""

from __future__ import annotations

import re
from typing import Final

# Part of queue names, and fits a database column.
AGENT_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# Bizzes, storage nodes and kinds of configuration: also parts of table and queue names.
IDENTIFIER: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
# Sources, credentials and notification channels.
SLUG: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
# Time series, such as ``queue.ready``.
SERIES: Final = re.compile(r"(?=.{1,64}\Z)[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
# Token of RFC 9110: a method, or the name of a header or cookie.
HTTP_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
# NUL and lone surrogates, which no database stores.
UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def is_token(name: object, longest: int) -> bool:
    """Return whether ``name`` can be the name of a header or cookie."""
    return _fits(HTTP_TOKEN, name, longest)


def is_header_value(value: object, longest: int) -> bool:
    """Return whether ``value`` is a line of printable ASCII; tabs are allowed."""
    return _fits(_HEADER_VALUE, value, longest)


def is_variable(name: object, longest: int) -> bool:
    """Return whether ``name`` can be the name of an environment variable."""
    return _fits(_VARIABLE, name, longest)


def _fits(pattern: re.Pattern[str], text: object, longest: int) -> bool:
    return isinstance(text, str) and len(text) <= longest and bool(pattern.fullmatch(text))
