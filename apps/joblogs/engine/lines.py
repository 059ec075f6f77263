"""Parsing and sanitizing of log lines. Plain Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Final, NamedTuple

from msgspec.structs import astuple

from apps.joblogs.engine.fingerprints import fingerprint
from apps.joblogs.engine.moments import microseconds, moment_of
from yardkit.log_lines import one_line
from yardkit.protocol import LogRecord

# In ascending order of severity.
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
ERRORS: Final = ("ERROR", "CRITICAL")
_LEVEL_NAMES: Final = frozenset(LEVELS)
_LOUDEST: Final = frozenset(ERRORS)
# Levels with the shorter retention; most program output has no level.
QUIET: Final = ("", "DEBUG", "INFO")
SHIPPED_LONGEST: Final = 17_000
# Escapes are longer than the characters they replace.
LONGEST_TEXT: Final = 20_000
CUT_MARK: Final = " ... [cut]"
SOURCE_CHARACTERS: Final = 100
# Accepted range of a line's time as given by its sender. A line outside of it would be deleted
# before its retention ends.
OLDEST: Final = timedelta(days=1)
NEWEST: Final = timedelta(hours=1)
BIGGEST_SEQ: Final = 2**63 - 1
_PRINTABLE: Final = bytes(range(32, 127))

_STREAM: Final = re.compile(r"(run|build):([1-9][0-9]{0,18})")
_BOOT: Final = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_WORDS: Final = {"WARN": "WARNING", "FATAL": "CRITICAL"}
_LEVEL: Final = r"(?P<level>DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
# Format of ``yardspider``: 2026-11-21 10:00:00.123Z INFO name: text
_WHOLE: Final = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)(?P<zone>Z|[+-]\d\d:\d\d)"
    rf" {_LEVEL} (?P<source>[\w.-]{{1,{SOURCE_CHARACTERS}}}): (?P<text>.*)",
    re.ASCII | re.DOTALL,
)
# Other common formats: [ERROR] text, INFO:root:text, 2026-11-21 10:00:00,123 - WARNING - text
_BEGINNING: Final = re.compile(
    r"(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S{0,12}[ -]{1,3})?[\[(]?" + _LEVEL + r"(?![\w=/.-])",
    re.ASCII,
)
# Last line of a traceback: KeyError: 'title'
_RAISED: Final = re.compile(
    r"(?:[A-Za-z_]\w{0,99}\.){0,9}[A-Z]\w{0,99}(?:Error|Exception|Timeout|Failure)(?::\s|$)",
    re.ASCII,
)
# Colours and cursor movements.
_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


class LogLine(NamedTuple):
    """Log line in its stored form."""

    seq: int
    # Microseconds since 1970. Not a datetime, which would take as long as all other work on a line.
    micros: int
    level: str
    source: str
    text: str
    # Fingerprint of the error group, see engine.fingerprints; "" for other lines.
    fingerprint: str = ""

    @property
    def at(self) -> datetime:
        """Return the time of the line."""
        return moment_of(self.micros)


# Inlined constructor of the named tuple, which is faster.
_line: Final[Callable[[tuple[int, int, str, str, str, str]], LogLine]] = partial(
    tuple.__new__, LogLine
)


class BadLines(ValueError):
    """A batch cannot be stored; the text says why."""


def owner_of(stream: str) -> tuple[str, int]:
    """Return the kind and ID of a stream: ``("run", 7)`` for ``run:7``. Raises ``BadLines``."""
    match = _STREAM.fullmatch(stream)
    if match is None or int(match[2]) > BIGGEST_SEQ:
        raise BadLines(f"{one_line(stream[:100])!r} names no stream of lines")
    return match[1], int(match[2])


def check_boot(boot: str) -> None:
    """Check the ID of an execution. Raises ``BadLines``."""
    if _BOOT.fullmatch(boot) is None:
        raise BadLines(f"{one_line(boot[:100])!r} is no boot")


def read_lines(records: Sequence[LogRecord], now: datetime) -> list[LogLine]:
    """Convert records as ``read_line`` does, faster.

    Raises ``BadLines`` for an invalid line number.
    """
    if not records:
        return []
    seqs, times, levels, sources, texts = zip(*map(astuple, records), strict=True)
    oldest, newest = _limits(now)
    # Fast path for lines of yardspider: known levels and no escapes.
    if not (
        _LEVEL_NAMES.issuperset(levels)
        and _are_printable(texts)
        and max(map(len, texts)) <= SHIPPED_LONGEST
        and not [value for value in times if not oldest <= value <= newest]
        and min(seqs) >= 1
        and max(seqs) <= BIGGEST_SEQ
    ):
        return [read_line(record, now) for record in records]
    named = {value: _source(value[:SOURCE_CHARACTERS]) for value in set(sources)}
    kinds = [
        fingerprint(named[source], text) if level in _LOUDEST else ""
        for level, source, text in zip(levels, sources, texts, strict=True)
    ]
    micros = [round(1e6 * seconds) for seconds in times]
    columns = seqs, micros, levels, [named[value] for value in sources], texts, kinds
    return list(map(_line, zip(*columns, strict=True)))


def _are_printable(texts: Sequence[str]) -> bool:
    """Return whether no text has control characters. ASCII is checked as bytes, twice as fast."""
    plain = [text for text in texts if text.isascii()]
    if "".join(plain).encode().translate(None, _PRINTABLE):
        return False
    return (
        len(plain) == len(texts)
        or "".join([text for text in texts if not text.isascii()]).isprintable()
    )


def read_line(record: LogRecord, now: datetime) -> LogLine:
    """Convert a record to its stored form. Raises ``BadLines`` for an invalid line number."""
    if not 1 <= record.seq <= BIGGEST_SEQ:
        raise BadLines(f"line {record.seq}: lines count from 1")
    text = record.text[:SHIPPED_LONGEST]
    micros, source = moment(record.at, now), record.source
    level = known_level(record.level)
    if not level:
        whole = _WHOLE.fullmatch(text)
        own = _own_time(whole, now) if whole is not None else None
        if whole is not None and own is not None:
            micros, source, text = microseconds(own), whole["source"], whole["text"]
        beginning = whole or _BEGINNING.match(text)
        if beginning is not None:
            level = known_level(beginning["level"])
        elif _RAISED.match(text):
            level = "ERROR"
    text = harmless(text)
    if len(text) > LONGEST_TEXT or len(record.text) > SHIPPED_LONGEST:
        text = text[:LONGEST_TEXT] + CUT_MARK
    source = _source(source[:SOURCE_CHARACTERS])
    kind = fingerprint(source, text) if level in ERRORS else ""
    return LogLine(record.seq, micros, level, source, text, kind)


def harmless(text: str) -> str:
    """Strip terminal colours and escape all other unprintable characters.

    Sanitized text cannot forge lines, HTML or terminal sequences, and fits every database.
    """
    # The rest of the unprintable characters is escaped by one_line.
    if text.isprintable():
        return text
    return one_line(_ANSI.sub("", text))


@lru_cache(1000)
def _source(text: str) -> str:
    """Sanitize a logger name. Cached, because few names repeat often; the caller cuts long names,
    which would fill the cache.
    """
    return harmless(text)[:SOURCE_CHARACTERS]


def known_level(word: str) -> str:
    """Return the level in ``LEVELS`` for a word such as "warn"; "" if unknown."""
    if word in LEVELS:
        return word
    upper = word.upper()
    upper = _WORDS.get(upper, upper)
    return upper if upper in LEVELS else ""


def moment(seconds: float, now: datetime) -> int:
    """Convert Unix seconds to microseconds; implausible times become ``now``."""
    oldest, newest = _limits(now)
    return round(1e6 * seconds) if oldest <= seconds <= newest else microseconds(now)


@lru_cache(4)
def _limits(now: datetime) -> tuple[float, float]:
    return (now - OLDEST).timestamp(), (now + NEWEST).timestamp()


def _own_time(match: re.Match[str], now: datetime) -> datetime | None:
    try:
        at = datetime.fromisoformat(match["at"].replace(",", ".") + match["zone"])
        return _believed(at.astimezone(UTC), now)
    except (ValueError, OverflowError):
        return None


def _believed(at: datetime, now: datetime) -> datetime | None:
    return at if now - OLDEST <= at <= now + NEWEST else None
