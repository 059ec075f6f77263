"""Names of items: UUIDs that grow with time, so that an index of them is written at its end."""

from __future__ import annotations

import os
import uuid
from datetime import datetime


def new_task_uuid(now: datetime) -> uuid.UUID:
    """A UUID of version 7: 48 bits of milliseconds, 74 of chance."""
    chance = int.from_bytes(os.urandom(10), "big")
    milliseconds = int(now.timestamp() * 1000)
    number = milliseconds << 80 | chance & ~(0xF << 76) & ~(0x3 << 62)
    return uuid.UUID(int=number | 7 << 76 | 2 << 62)
