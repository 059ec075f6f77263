"""The flag of a stored request (seed S4.6): 0 new, 1 processed, 2 to 999 the biz's own.

The negative ones are the platform's, and no biz may define them; a consumer of other make, which
looks for flag 0, meets none of those that are in somebody's hands.
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
    """Nothing will change any more: processed in some way, or expired."""
    return flag > NEW or flag == EXPIRED


def is_own(flag: int) -> bool:
    """May somebody end a request with it?"""
    return NEW < flag <= MAX_FLAG
