"""Seeds: input, resolved form, state transitions and limits."""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

import msgspec

from apps.seeds.engine.errors import BadSeed
from yardkit.names import CONTROL
from yardkit.protocol.seeds import Seed, SeedOutcome, SeedState

# Default number of tries until a seed counts as failed (seed S3.11).
MAX_RETRY: Final = 3
MAX_RETRY_LIMIT: Final = 1000
MAX_DATA_BYTES: Final = 64 * 1024
MAX_KEY_BYTES: Final = 8 * 1024
MAX_EXT_BYTES: Final = 64 * 1024
_MAX_EXT_DEPTH: Final = 20

# Segment of seeds without a time, which are crawled only once (seed S3.4).
DEFAULT_SEGMENT: Final = 0

# Times are ms since 1970. A segment begins above 0 in every zone; from 1973 on, UTC offsets change
# at full minutes only.
FIRST_TIME: Final = 94_694_400_000  # 1973
LAST_TIME: Final = 4_102_444_800_000  # 2100

# Due times of seeds without a time: urgent ones come before all others.
URGENT_DUE: Final = 0
TIMELESS_DUE: Final = 1

__all__ = ["Outcome", "ResolvedSeed", "Seed", "State", "after", "check_ext", "check_text"]


# Shared by the wire format and the stores.
State: TypeAlias = SeedState
Outcome: TypeAlias = SeedOutcome

PENDING: Final = frozenset({State.INIT, State.RETRY})
FINAL: Final = frozenset({State.SUCCEEDED, State.FAILED, State.IGNORED})


class ResolvedSeed(msgspec.Struct, frozen=True):
    """Validated seed with segment and key, ready to be stored.

    ``key``: unique within a segment; ``hash``: its 16-byte hash. ``due``: earliest lease, ms since
    1970.
    """

    segment: int
    key: str
    hash: bytes
    due: int
    max_retry: int
    data: str
    ext: dict[str, Any] | None = None


def after(outcome: Outcome, retry: int, max_retry: int) -> tuple[State, int]:
    """Return state and retry count of a leased seed after ``outcome``."""
    if outcome == Outcome.SUCCESS:
        return State.SUCCEEDED, retry
    if outcome == Outcome.IGNORED:
        return State.IGNORED, retry
    retry = min(retry + 1, MAX_RETRY_LIMIT)
    if outcome == Outcome.GIVEN_UP or retry >= max_retry:
        return State.FAILED, retry
    return State.RETRY, retry


def check_text(what: str, value: object, most_bytes: int) -> str:
    """Return ``value`` if it is a text of at most ``most_bytes`` in UTF-8.

    Raises:
        BadSeed: code with ``what`` as a part: ``empty_key``, ``key_too_large``, ``binary_key``.
    """
    if not isinstance(value, str):
        raise BadSeed(f"binary_{what}", f"the {what} is {type(value).__name__}, not text")
    # Fast path for most texts: ASCII without control characters.
    if value.isascii() and value.isprintable() and 0 < len(value) <= most_bytes:
        return value
    if not value:
        raise BadSeed(f"empty_{what}", f"the {what} is empty")
    # Every character takes at least one byte, so most texts are judged without encoding them.
    if len(value) > most_bytes:
        raise BadSeed(f"{what}_too_large", _too_large(what, len(value), most_bytes))
    match = CONTROL.search(value)
    if match:
        where = f"U+{ord(match[0]):04X} at position {match.start() + 1}"
        raise BadSeed(f"binary_{what}", f"the {what} has a control character, {where}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        where = f"half a character at position {error.start + 1}"
        raise BadSeed(f"binary_{what}", f"the {what} has {where}") from None
    if size > most_bytes:
        raise BadSeed(f"{what}_too_large", _too_large(what, size, most_bytes))
    return value


def _too_large(what: str, size: int, most_bytes: int) -> str:
    return f"the {what} has {size} bytes or more, {most_bytes} are allowed"


def check_ext(ext: object) -> None:
    """Reject values that JSON does not preserve. Raises ``BadSeed`` (``bad_ext``)."""
    if not isinstance(ext, dict):
        raise BadSeed("bad_ext", f"ext is {type(ext).__name__}, not an object")
    try:
        _check_value(ext, _MAX_EXT_DEPTH)
        size = len(msgspec.msgpack.encode(ext))
    except (TypeError, ValueError, OverflowError) as error:
        raise BadSeed("bad_ext", f"ext: {error}") from None
    if size > MAX_EXT_BYTES:
        raise BadSeed("bad_ext", _too_large("ext", size, MAX_EXT_BYTES))


def _check_value(value: object, depth: int) -> None:
    if depth < 0:
        raise ValueError(f"deeper than {_MAX_EXT_DEPTH}")
    if isinstance(value, dict):
        for name, part in value.items():
            if not isinstance(name, str):
                raise TypeError(f"the name {name!r} is no text")
            _check_value(part, depth - 1)
    elif isinstance(value, list):
        for part in value:
            _check_value(part, depth - 1)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number of JSON")
    elif value is not None and not isinstance(value, str | int):
        raise TypeError(f"{type(value).__name__} is no kind of value in JSON")
