"""Bloom filter of a segment: a miss proves that a key is new, a hit must be confirmed.

A hit is confirmed in the store, because a Bloom filter has false positives. The original system
loses such seeds.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec
from rbloom import Bloom

from apps.seeds.engine.errors import InvalidFrontierSetting
from yardkit import failpoints

EXPECTED: Final = 1_000_000
FALSE_POSITIVES: Final = 0.001
MAX_EXPECTED: Final = 1_000_000_000

_MAGIC: Final = b"yardbloom1"
# File header: mark of the segment, expected keys, rate.
_HEAD: Final = struct.Struct(">QQd")
_CHECK_BYTES: Final = 16


class FilterSettings(msgspec.Struct, frozen=True):
    """Settings of new filters: ``expected`` keys of a segment, and the false-positive rate at that
    size.

    At the default rate a filter takes 1.8 bytes per expected key. With more keys the false-positive
    rate rises, so that more lookups go to the store; answers stay exact.
    """

    expected: int = EXPECTED
    rate: float = FALSE_POSITIVES

    def checked(self) -> FilterSettings:
        """Return the settings if they are valid. Raises ``InvalidFrontierSetting``."""
        if not 1 <= self.expected <= MAX_EXPECTED:
            raise InvalidFrontierSetting(
                f"a filter for {self.expected} keys: 1 to {MAX_EXPECTED} can be"
            )
        if not 1e-9 <= self.rate <= 0.5:
            raise InvalidFrontierSetting(
                f"a rate of false positives of {self.rate}: 1e-9 to 0.5 can be"
            )
        return self


class FilterState(msgspec.Struct, frozen=True):
    """State of a filter. ``fill``: share of bits set; ``rate``: false-positive rate estimated from
    it.
    """

    expected: int
    wanted_rate: float
    size_bytes: int
    fill: float
    rate: float
    ready: bool = True


class FilterUnreadable(Exception):
    """The file is damaged, not a filter, or older than its segment."""


def _number(key: bytes) -> int:
    return int.from_bytes(key, "big", signed=True)


class SegmentFilter:
    """Bloom filter of 16-byte hashes."""

    def __init__(self, settings: FilterSettings, bloom: Bloom | None = None) -> None:
        self.settings = settings
        self._bloom = bloom or Bloom(settings.expected, settings.rate, _number)

    def __contains__(self, key: bytes) -> bool:
        return key in self._bloom

    def add(self, keys: Iterable[bytes]) -> None:
        self._bloom.update(keys)

    def maybe_seen(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the keys that may be known and have to be looked up; all others are new."""
        bloom = self._bloom
        return [key for key in keys if key in bloom]

    def state(self) -> FilterState:
        """Return size, fill and estimated false-positive rate."""
        bits = self._bloom.size_in_bits
        # Inverts the library's formula for the number of items.
        hashes = max(1, int(-math.log2(self.settings.rate)))
        fill = 1 - math.exp(-self._bloom.approx_items * hashes / bits)
        return FilterState(
            expected=self.settings.expected,
            wanted_rate=self.settings.rate,
            size_bytes=bits // 8,
            fill=round(fill, 6),
            rate=fill**hashes,
        )

    def save(self, path: Path, mark: int) -> None:
        """Write the filter atomically: temporary file, fsync, rename. ``mark``: version of the
        segment, changed by each later key.
        """
        head = _HEAD.pack(mark, self.settings.expected, self.settings.rate)
        content = head + self._bloom.save_bytes()
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.tmp")
        try:
            with beside.open("wb") as file:
                file.write(_MAGIC + _check(content) + content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        failpoints.hit("seeds.filter.before_rename")
        beside.replace(path)

    @classmethod
    def load(cls, path: Path, mark: int) -> SegmentFilter:
        """Load the filter that was saved when its segment had this ``mark``.

        Raises:
            FilterUnreadable: the file is missing or damaged, or keys were added after it was saved.
        """
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise FilterUnreadable(f"{path.name}: {error.strerror}") from None
        start = len(_MAGIC) + _CHECK_BYTES
        content = raw[start:]
        if raw[: len(_MAGIC)] != _MAGIC or raw[len(_MAGIC) : start] != _check(content):
            raise FilterUnreadable(f"{path.name} is damaged")
        then, expected, rate = _HEAD.unpack_from(content)
        if then != mark:
            raise FilterUnreadable(f"{path.name} lacks the newest keys")
        bloom = Bloom.load_bytes(content[_HEAD.size :], _number)
        return cls(FilterSettings(expected, rate), bloom)


def _check(content: bytes) -> bytes:
    return blake2b(content, digest_size=_CHECK_BYTES).digest()
