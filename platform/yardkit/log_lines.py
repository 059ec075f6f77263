"""Log lines that foreign text cannot forge."""

from __future__ import annotations

import logging
import re

# Control characters and line separators, except the tab.
_CONTROL = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_IN_TRACEBACK = re.compile(_CONTROL.pattern.replace(r"\x0a-", r"\x0b-"))


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def one_line(text: str) -> str:
    """Escape control characters, lone surrogates and direction marks."""
    return _CONTROL.sub(_escaped, text)


class OneLineFormatter(logging.Formatter):
    """Format each record as one line; text from pages and messages cannot start another.

    Control characters are escaped. Traceback lines are indented.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the escaped line."""
        return one_line(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        """Return the escaped and indented traceback."""
        text = super().formatException(ei)  # type: ignore[arg-type]
        return "    " + _IN_TRACEBACK.sub(_escaped, text).replace("\n", "\n    ")
