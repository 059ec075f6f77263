"""Time-ordered UUIDs (version 7) of items, so that index inserts happen at the end."""

from __future__ import annotations

import os
import uuid
from datetime import datetime
from typing import Final

# Mask of the random bits: 80 bits without those of the version and the variant.
_CHANCE: Final = (1 << 80) - 1 & ~(0xF << 76) & ~(0x3 << 62)


def new_task_uuid(now: datetime) -> uuid.UUID:
    """Return a UUID version 7: 48 bits of Unix time in milliseconds, 74 random bits."""
    return new_task_uuids(now, 1)[0]


def new_task_uuids(now: datetime, count: int) -> list[uuid.UUID]:
    """Return ``count`` UUIDs with one call for random bytes, cheaper than one call for each."""
    chance = os.urandom(10 * count)
    same = int(now.timestamp() * 1000) << 80 | 7 << 76 | 2 << 62
    return [
        uuid.UUID(int=same | int.from_bytes(chance[at : at + 10], "big") & _CHANCE)
        for at in range(0, 10 * count, 10)
    ]
