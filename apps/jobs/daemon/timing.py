"""How long a runner waits for what."""

from __future__ import annotations

from typing import Final

WATCH_EVERY_SECONDS = 5.0
# After so long without a watch of its own, a runner gives the others time before it judges them:
# most likely the database was away for all of them.
WATCH_GAP_SECONDS = 15.0
# A wake-up may be lost; so often a runner looks for runs that no host has.
PLACE_EVERY_SECONDS = 1.0
TIDY_EVERY_SECONDS = 60.0
# A run that has not answered the exit message after this long does not listen to messages.
UNHEARD_SECONDS = 2.0
# One that has answered gets this long to end by itself.
ANSWERED_SECONDS = 30.0
# Between the signal to stop and the kill.
STOP_GRACE_SECONDS = 5.0
# On the runner's own way out everything must be over within 5 s, and a supervisor kills it
# before that: what does not listen must be dead by then.
SHUTDOWN_GRACE_SECONDS = 2.4
KILL_SECONDS: Final = 0.5
LOG_CLOSE_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.2
