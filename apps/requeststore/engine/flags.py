"""Flags of stored requests: 0 new, 1 processed, 2 to 999 defined by the biz.

Negative flags are the platform's. A foreign consumer, which searches for flag 0, never meets a
leased request.
"""

from __future__ import annotations

from typing import Final

NEW: Final = 0
PROCESSED: Final = 1
# Failed after all tries, unless the biz defines another failed flag.
FAILED: Final = 2
MAX_FLAG: Final = 999

# Leased to a consumer until its deadline.
TAKEN: Final = -1
# Expired unprocessed; deleted after the retention.
EXPIRED: Final = -2
# Being moved to another shard; can be neither leased nor finished meanwhile.
MOVING: Final = -3


def is_final(flag: int) -> bool:
    """Return whether the flag is final: ended, or expired."""
    return flag > NEW or flag == EXPIRED


def is_own(flag: int) -> bool:
    """Return whether a consumer may end a request with this flag."""
    return NEW < flag <= MAX_FLAG
