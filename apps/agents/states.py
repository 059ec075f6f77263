"""What an agent is, seen from the control plane."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from yardkit.topology import AGENT_ALIVE_SECONDS

ALIVE_FOR: Final = timedelta(seconds=AGENT_ALIVE_SECONDS)


def is_alive(heartbeat_at: datetime | None, now: datetime) -> bool:
    """Alive iff the last heartbeat is younger than 11 s by the receiver's clock (seed S1.38)."""
    return heartbeat_at is not None and now - heartbeat_at < ALIVE_FOR
