"""Errors of the seed service, each with a stable code."""

from __future__ import annotations

from typing import ClassVar


class SeedError(Exception):
    """Base of the seed service's errors; ``str()`` says what was wrong and where."""

    code: ClassVar[str] = "seed_error"


class BadSeed(SeedError):
    """The seed is invalid. ``code`` says why: ``empty_data``, ``key_too_large``, ..."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code  # type: ignore[misc]  # code differs per instance


class InvalidFrontierSetting(SeedError):
    """Unusable resolver, time zone or filter setting of a frontier."""

    code = "bad_setting"


class BadCall(SeedError):
    """The owner, limit, lease time or batch of a call is out of range."""

    code = "bad_call"


class UnknownSeed(SeedError):
    """The segment has no such key."""

    code = "unknown_key"


class UnknownSegment(SeedError):
    """The frontier has no such segment."""

    code = "unknown_segment"


class SeedInUse(SeedError):
    """The seed, or a seed of the segment, is leased."""

    code = "seed_in_use"


class SeedNotFinal(SeedError):
    """Only a finished seed can be reopened."""

    code = "seed_not_final"


class CallInWork(SeedError):
    """Another service is processing the same call; a repetition gets its lease."""

    code = "ask_again"


class WrongSeedLease(SeedError):
    """The lease does not exist or belongs to another owner; it may have expired."""

    code = "wrong_lease"


class ClockBack(SeedError):
    """The clock went back further than the store tolerates."""

    code = "clock_back"


class StoreInUse(SeedError):
    """Another process owns the folder of the store."""

    code = "store_in_use"


class SeedStoreUnavailable(SeedError):
    """The store cannot be opened, read or written at the moment."""

    code = "store_unavailable"
