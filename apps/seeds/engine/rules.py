"""Rules of a frontier: validate an added seed and compute its key, segment and due time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from zoneinfo import ZoneInfo

from apps.seeds.engine.errors import BadSeed
from apps.seeds.engine.keys import KeyResolver, key_hash, whole
from apps.seeds.engine.seeds import (
    DEFAULT_SEGMENT,
    FIRST_TIME,
    LAST_TIME,
    MAX_DATA_BYTES,
    MAX_KEY_BYTES,
    MAX_RETRY,
    MAX_RETRY_LIMIT,
    TIMELESS_DUE,
    URGENT_DUE,
    ResolvedSeed,
    Seed,
    check_ext,
    check_text,
)
from apps.seeds.engine.segments import DEFAULT, SegmentResolver, segment_resolver, time_text


def _by_day() -> SegmentResolver:
    return segment_resolver(DEFAULT, ZoneInfo("UTC"))


class NewPlace(NamedTuple):
    """Segment, key and due time of a stored seed under new rules. ``kept``: its old key or segment
    is kept, because the new rules reject it.
    """

    segment: int
    key: str
    due: int
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierRules:
    """Key, segment and limits of a frontier's seeds.

    ``max_data_bytes``, ``max_key_bytes``: in UTF-8. ``max_retry``: for seeds without their own.
    """

    segments: SegmentResolver = field(default_factory=_by_day)
    keys: KeyResolver = whole
    max_retry: int = MAX_RETRY
    max_data_bytes: int = MAX_DATA_BYTES
    max_key_bytes: int = MAX_KEY_BYTES

    def resolve(self, seed: Seed) -> ResolvedSeed:
        """Return the seed with its segment and key.

        Raises:
            BadSeed: the seed is invalid; ``code`` is ``empty_data``, ``data_too_large``,
                ``binary_data``, the same for ``key``, ``bad_key``, ``bad_time``, ``bad_segment``,
                ``bad_retry`` or ``bad_ext``.
        """
        data = check_text("data", seed.data, self.max_data_bytes)
        key = self._key(data)
        segment, due = self._place(seed)
        most = self.max_retry if seed.max_retry is None else seed.max_retry
        if not 0 <= most <= MAX_RETRY_LIMIT:
            raise BadSeed("bad_retry", f"max_retry {most} is outside 0 to {MAX_RETRY_LIMIT}")
        if seed.ext:
            check_ext(seed.ext)
        return ResolvedSeed(segment, key, key_hash(key), due, most, data, seed.ext or None)

    def resolve_all(self, seeds: Iterable[Seed]) -> list[ResolvedSeed | BadSeed]:
        """Resolve each seed by itself; an invalid one does not affect the others."""
        answers: list[ResolvedSeed | BadSeed] = []
        for seed in seeds:
            try:
                answers.append(self.resolve(seed))
            except BadSeed as refusal:
                answers.append(refusal)
        return answers

    def regroup(self, segment: int, key: str, data: str, due: int) -> NewPlace:
        """Return where a seed stored under other rules belongs under these.

        If these rules reject the seed, it keeps its key or segment, so that no seed is lost.
        ``due`` counts as its time; a seed without a time stays without.
        """
        kept = False
        try:
            key = self._key(data)
        except BadSeed:
            kept = True
        if due < FIRST_TIME:
            return NewPlace(segment, key, due, kept or segment != DEFAULT_SEGMENT)
        try:
            segment, due = self._place(Seed(data, active_at=due))
        except BadSeed:
            kept = True
        return NewPlace(segment, key, due, kept)

    def _key(self, data: str) -> str:
        try:
            key = self.keys(data)
        except Exception as error:  # noqa: BLE001 - people's URLs, plug-ins of others
            raise BadSeed("bad_key", f"no key: {type(error).__name__}: {error}") from None
        # The data was checked before; a character has at most four bytes.
        if key is data and 4 * len(key) <= self.max_key_bytes:
            return key
        return check_text("key", key, self.max_key_bytes)

    def _place(self, seed: Seed) -> tuple[int, int]:
        """Return segment and due time; a plug-in's segment may begin after ``active_at``."""
        active_at = seed.active_at
        if active_at is None:
            return DEFAULT_SEGMENT, URGENT_DUE if seed.urgent else TIMELESS_DUE
        if seed.urgent:
            raise BadSeed("bad_time", "an urgent seed is due at once, and has no active_at")
        if not FIRST_TIME <= active_at < LAST_TIME:
            raise BadSeed("bad_time", f"active_at {active_at} is not in ms between 1973 and 2100")
        try:
            segment = self.segments(active_at)
        except Exception as error:  # noqa: BLE001 - plug-ins of others
            text = f"no segment for {time_text(active_at)}: {type(error).__name__}: {error}"
            raise BadSeed("bad_segment", text) from None
        if not isinstance(segment, int) or not DEFAULT_SEGMENT <= segment < LAST_TIME:
            raise BadSeed("bad_segment", f"{segment!r} is no beginning of a segment")
        return segment, max(active_at, segment)
