"""The bloom filter of a segment: a cheap "surely new", never the last word on "seen".

A hit is confirmed in the store, because a filter also says "seen" of keys it has never met
(seed S3.7: the original loses those seeds).
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
# Mark of the segment, expected keys, rate.
_HEAD: Final = struct.Struct(">QQd")
_CHECK_BYTES: Final = 16


class FilterSettings(msgspec.Struct, frozen=True):
    """``expected`` keys of a segment, and the share of new ones that may look seen by then.

    At the default rate a filter takes 1.8 bytes for each expected key. With more keys than
    expected more of them have to be looked up; no answer changes.
    """

    expected: int = EXPECTED
    rate: float = FALSE_POSITIVES

    def checked(self) -> FilterSettings:
        """These settings. Raises ``InvalidFrontierSetting``."""
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
    """State of a filter. ``fill``: share of bits set; ``rate``: estimated by it."""

    expected: int
    wanted_rate: float
    size_bytes: int
    fill: float
    rate: float
    ready: bool = True


class FilterUnreadable(Exception):
    """The file is no filter, damaged, or not of this moment of its segment."""


def _number(key: bytes) -> int:
    return int.from_bytes(key, "big", signed=True)


class SegmentFilter:
    """A filter of 16-byte hashes."""

    def __init__(self, settings: FilterSettings, bloom: Bloom | None = None) -> None:
        self.settings = settings
        self._bloom = bloom or Bloom(settings.expected, settings.rate, _number)

    def __contains__(self, key: bytes) -> bool:
        return key in self._bloom

    def add(self, keys: Iterable[bytes]) -> None:
        """Remember them."""
        self._bloom.update(keys)

    def maybe_seen(self, keys: Sequence[bytes]) -> list[bytes]:
        """Those that have to be looked up; all others are new."""
        bloom = self._bloom
        return [key for key in keys if key in bloom]

    def state(self) -> FilterState:
        """Size, fill and estimated rate."""
        bits = self._bloom.size_in_bits
        # Inverse of the library's formulas for the number of items.
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
        """Write it beside, sync, rename. ``mark``: a number that no later key leaves as it is."""
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
        """The filter that was saved when its segment had this ``mark``.

        Raises:
            FilterUnreadable: there is no such file, it is damaged, or keys came after it.
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
