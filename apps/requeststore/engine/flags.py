"""Flags of stored requests (seed S4.6): 0 new, 1 processed, 2 to 999 defined by the biz.

Negative flags are the platform's. A foreign consumer, which searches for flag 0, never meets a
leased request.
"""

from __future__ import annotations

from typing import Final

NEW: Final = 0
PROCESSED: Final = 1
# What a fetcher gives a request that it could not download or read after all its tries, unless the
# biz names another.
FAILED: Final = 2
MAX_FLAG: Final = 999

# Somebody has it until its deadline.
TAKEN: Final = -1
# Its time was over before anybody had processed it: counted, shown, and soon deleted.
EXPIRED: Final = -2
# On its way into another shard; nobody can take or finish it meanwhile.
MOVING: Final = -3


def is_final(flag: int) -> bool:
    """Return whether the flag is final: ended, or expired."""
    return flag > NEW or flag == EXPIRED


def is_own(flag: int) -> bool:
    """Return whether a consumer may end a request with this flag."""
    return NEW < flag <= MAX_FLAG
