"""Filters that shorten and clean texts before they are sent on.

Agents and local spiders pass every response through a ``TextFilter``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import html
import re
from collections.abc import Callable
from typing import Any, Final

import re2

from yardkit import charsets
from yardkit.fetched import Fetched
from yardkit.protocol import CutRule, DownloaderSettings, FailureKind

MAX_RULES: Final = 50
MAX_PATTERN_CHARACTERS: Final = 1000
# Limit of the size of re2's program: a search takes at most the text's length times this. re2
# releases the interpreter lock.
MAX_PATTERN_SIZE: Final = 2000
# Above this size the work would block the event loop for some milliseconds ...
_IN_THREAD_BYTES: Final = 128 * 1024
# ... and above a part of it where the patterns are so much larger than usual.
_USUAL_PATTERN_SIZE: Final = 50
_SHOWN_CHARACTERS: Final = 60
_CONTENT_TYPE: Final = b"content-type"
# Besides text/* and types that end in +xml or +json.
_TEXT_TYPES: Final = frozenset(
    {
        "application/ecmascript",
        "application/javascript",
        "application/json",
        "application/rss",
        "application/x-javascript",
        "application/x-json",
        "application/x-ndjson",
        "application/x-www-form-urlencoded",
        "application/xml",
    }
)
# Python refuses to parse longer numbers; no code point has one.
_ENDLESS_NUMBER: Final = re.compile(r"&#[0-9]{4000,};?")
_NO_CHARACTER: Final = "\ufffd"

_Cut = Callable[[str], str]


class CannotCut(ValueError):
    """A rule does not fit the text; names the rule and the reason."""


class TextFilter:
    """Apply a run's text settings: ``encoding``, ``decode_html`` and ``cut``.

    ``encoding`` is written into the ``Content-Type`` of texts without a byte-order mark. Of
    successful responses (2xx) entities are resolved, then rules applied in order; the result has
    the page's encoding, or UTF-8 if that lacks a character, as ``Content-Type`` says. A page that
    the rules do not fit, or that is no text, fails with ``BAD_RULE``.

    Raises ``ValueError`` for invalid settings, naming the rule, counted from 1.
    """

    def __init__(self, settings: DownloaderSettings) -> None:
        self._encoding = settings.encoding
        self._decodes_html = settings.decode_html
        self._max_body_bytes = settings.max_body_bytes
        if self._encoding and charsets.known(self._encoding) is None:
            raise ValueError(f"encoding {_shown(self._encoding)} is unknown")
        if len(settings.cut) > MAX_RULES:
            raise ValueError(f"{len(settings.cut)} cut rules; use up to {MAX_RULES}")
        self._cuts: list[_Cut] = []
        size = _USUAL_PATTERN_SIZE
        for number, rule in enumerate(settings.cut, 1):
            pattern = _pattern(number, rule) if rule.pattern else None
            size += pattern.programsize if pattern else 0
            self._cuts.append(_cut(number, rule, pattern))
        self._in_thread_bytes = _IN_THREAD_BYTES * _USUAL_PATTERN_SIZE // size

    async def apply(self, fetched: Fetched) -> Fetched:
        """Return the filtered response; large ones are processed outside the event loop."""
        if fetched.failure or not (self._encoding or self._decodes_html or self._cuts):
            return fetched
        if len(fetched.body) > self._in_thread_bytes:
            return await asyncio.to_thread(self._apply, fetched)
        return self._apply(fetched)

    def _apply(self, fetched: Fetched) -> Fetched:
        content_type = fetched.header(_CONTENT_TYPE)
        successful = 200 <= fetched.status < 300
        if not _is_text(content_type, fetched.body):
            if self._cuts and successful:
                return _failed(fetched, f"rules cut texts, and this is {_shown(content_type)}")
            return fetched
        if self._encoding and not charsets.has_mark(fetched.body):
            content_type = charsets.declaring(content_type, self._encoding)
            fetched = _with_type(fetched, content_type)
        if not successful or not (self._decodes_html or self._cuts):
            return fetched
        text, encoding = charsets.decode(fetched.body, content_type)
        if self._decodes_html:
            text = resolve_entities(text)
        try:
            for cut in self._cuts:
                text = cut(text)
        except CannotCut as error:
            return _failed(fetched, str(error))
        body, encoding = charsets.encode(text, encoding)
        fetched = _with_type(fetched, charsets.declaring(content_type, encoding))
        limit = self._max_body_bytes  # UTF-8 may need more bytes than the page had
        truncated = fetched.truncated or len(body) > limit
        return dataclasses.replace(fetched, body=body[:limit], truncated=truncated)


def resolve_entities(text: str) -> str:
    """Replace ``&amp;``, ``&#20013;`` and the like by their characters, as browsers do."""
    return html.unescape(_ENDLESS_NUMBER.sub(_NO_CHARACTER, text))


# --- rules --------------------------------------------------------------------------------------


def _pattern(number: int, rule: CutRule) -> Any:
    if rule.start or rule.end:
        raise ValueError(f"cut rule {number}: it has a pattern, so no start and no end")
    if len(rule.pattern) > MAX_PATTERN_CHARACTERS:
        raise ValueError(
            f"cut rule {number}: the pattern has {len(rule.pattern)} characters;"
            f" use up to {MAX_PATTERN_CHARACTERS}"
        )
    options = re2.Options()
    options.log_errors = False  # they are raised
    try:
        pattern = re2.compile(rule.pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise ValueError(f"cut rule {number}: bad pattern: {_reason(error)}") from error
    if pattern.programsize > MAX_PATTERN_SIZE:
        raise ValueError(f"cut rule {number}: the pattern repeats too much; use smaller counts")
    return pattern


def _cut(number: int, rule: CutRule, pattern: Any) -> _Cut:
    if pattern is None:
        return lambda text: _part(text, *_between(text, number, rule), number, rule)
    group = min(1, pattern.groups)

    def cut(text: str) -> str:
        match = pattern.search(text)
        begin, stop = (-1, -1) if match is None else match.span(group)
        if begin < 0:
            problem = "no match" if match is None else "nothing in its group"
            raise CannotCut(f"cut rule {number}: {problem} of pattern {_shown(rule.pattern)}")
        return _part(text, begin, stop, number, rule)

    return cut


def _between(text: str, number: int, rule: CutRule) -> tuple[int, int]:
    begin = text.find(rule.start)
    if begin < 0:
        raise CannotCut(f"cut rule {number}: start {_shown(rule.start)} was not found")
    if not rule.end:
        return begin, len(text)
    end = text.find(rule.end, begin + len(rule.start))
    if end < 0:
        raise CannotCut(f"cut rule {number}: end {_shown(rule.end)} was not found after the start")
    return begin, end + len(rule.end)


def _part(text: str, begin: int, stop: int, number: int, rule: CutRule) -> str:
    begin += rule.start_offset
    stop += rule.end_offset
    if begin < 0:
        raise CannotCut(f"cut rule {number}: it begins {-begin} characters before the text")
    if stop > len(text):
        raise CannotCut(f"cut rule {number}: it ends {stop - len(text)} characters after the text")
    if stop < begin:
        raise CannotCut(f"cut rule {number}: the length is negative: {stop - begin} characters")
    part = text[begin:stop]
    return part.strip() if rule.trim else part


# --- answers ------------------------------------------------------------------------------------


def _with_type(fetched: Fetched, content_type: str) -> Fetched:
    """Return the response with this as its first ``Content-Type``."""
    headers = list(fetched.raw_headers)
    for position, (name, _) in enumerate(headers):
        if name.lower() == _CONTENT_TYPE:
            headers[position] = (name, content_type.encode())
            break
    else:
        headers.append((b"Content-Type", content_type.encode()))
    return dataclasses.replace(fetched, raw_headers=headers)


def _is_text(content_type: str, body: bytes) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    if not kind:
        # No content type: only a text with a byte-order mark may contain NUL.
        return charsets.has_mark(body) or b"\0" not in body
    return kind.startswith("text/") or kind.endswith(("+xml", "+json")) or kind in _TEXT_TYPES


def _failed(fetched: Fetched, error: str) -> Fetched:
    return dataclasses.replace(
        fetched, status=0, raw_headers=[], body=b"", failure=FailureKind.BAD_RULE, error=error
    )


def _shown(text: str) -> str:
    short = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    return repr(short) if text else "of no known type"


def _reason(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(error)
