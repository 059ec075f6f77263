"""Names of items: UUIDs that grow with time, so that an index of them is written at its end."""

from __future__ import annotations

import os
import uuid
from datetime import datetime
from typing import Final

# Without the bits of the version and of the variant.
_CHANCE: Final = (1 << 80) - 1 & ~(0xF << 76) & ~(0x3 << 62)


def new_task_uuid(now: datetime) -> uuid.UUID:
    """A UUID of version 7: 48 bits of milliseconds, 74 of chance."""
    return new_task_uuids(now, 1)[0]


def new_task_uuids(now: datetime, count: int) -> list[uuid.UUID]:
    """So many of them: the system is asked for chance once."""
    chance = os.urandom(10 * count)
    same = int(now.timestamp() * 1000) << 80 | 7 << 76 | 2 << 62
    return [
        uuid.UUID(int=same | int.from_bytes(chance[at : at + 10], "big") & _CHANCE)
        for at in range(0, 10 * count, 10)
    ]
