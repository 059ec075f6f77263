"""Errors of the seed service, each with a stable code."""

from __future__ import annotations

from typing import ClassVar


class SeedError(Exception):
    """Base of all refusals; ``str()`` says what was wrong and where."""

    code: ClassVar[str] = "seed_error"


class BadSeed(SeedError):
    """One seed cannot be taken. ``code`` says why: ``empty_data``, ``key_too_large``, ..."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code  # type: ignore[misc]  # each seed has its own reason


class InvalidFrontierSetting(SeedError):
    """A frontier cannot work with this resolver, time zone or filter."""

    code = "bad_setting"


class BadCall(SeedError):
    """A caller's owner, limit, lease time or batch is outside what is allowed."""

    code = "bad_call"


class UnknownSeed(SeedError):
    """The segment has no such key."""

    code = "unknown_key"


class UnknownSegment(SeedError):
    """The frontier has no such segment."""

    code = "unknown_segment"


class SeedInUse(SeedError):
    """The seed, or seeds of the segment, are leased."""

    code = "seed_in_use"


class SeedNotFinal(SeedError):
    """Only a seed that has ended can be opened again."""

    code = "seed_not_final"


class CallInWork(SeedError):
    """Another service is processing the same call; a repetition gets its lease."""

    code = "ask_again"


class WrongSeedLease(SeedError):
    """There is no such lease of this owner; it may have expired."""

    code = "wrong_lease"


class ClockBack(SeedError):
    """The clock has gone back further than the store puts up with."""

    code = "clock_back"


class StoreInUse(SeedError):
    """Another process owns the store's folder."""

    code = "store_in_use"


class SeedStoreUnavailable(SeedError):
    """The store cannot be opened, read or written now."""

    code = "store_unavailable"
