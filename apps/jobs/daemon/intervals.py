"""Intervals and timeouts of the runner, in seconds."""

from __future__ import annotations

from typing import Final

WATCH_EVERY_SECONDS = 5.0
# After a gap of this length between two renewals the database was probably unreachable for all
# runners: other hosts get time to renew their leases before their runs are reaped.
WATCH_GAP_SECONDS = 15.0
# Wake-ups may be lost, so placement also runs at this interval.
PLACE_EVERY_SECONDS = 1.0
TIDY_EVERY_SECONDS = 60.0
# A run that has not answered the exit message after this time does not listen to messages.
UNHEARD_SECONDS = 2.0
# Time for a run to end by itself after it has answered the exit message.
ANSWERED_SECONDS = 30.0
# Between SIGTERM and SIGKILL.
STOP_GRACE_SECONDS = 5.0
# The supervisor kills a stopping runner after 5 s; its runs must have ended by then.
SHUTDOWN_GRACE_SECONDS = 2.4
KILL_SECONDS: Final = 0.5
LOG_CLOSE_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.2
