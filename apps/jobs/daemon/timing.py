"""Intervals and timeouts of the runner, in seconds."""

from __future__ import annotations

from typing import Final

WATCH_EVERY_SECONDS = 5.0
# After a gap of this length between two renewals the database was probably away for all
# runners: the other hosts get time to renew before their runs are judged.
WATCH_GAP_SECONDS = 15.0
# Wake-ups may be lost, so placement also runs at this interval.
PLACE_EVERY_SECONDS = 1.0
TIDY_EVERY_SECONDS = 60.0
# A run that has not answered the exit message by then does not listen to messages.
UNHEARD_SECONDS = 2.0
# Time for a run that has answered the exit message to end by itself.
ANSWERED_SECONDS = 30.0
# Between SIGTERM and SIGKILL.
STOP_GRACE_SECONDS = 5.0
# A stopping runner has 5 s before its supervisor kills it; its runs must have ended by then.
SHUTDOWN_GRACE_SECONDS = 2.4
KILL_SECONDS: Final = 0.5
LOG_CLOSE_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.2
