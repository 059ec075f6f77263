"""Names of the notifications for pages, and the signals of this app."""

from __future__ import annotations

from typing import Final

from django.dispatch import Signal

RUN_CHANGED: Final = "run.changed"

# run, now: the run has entered a final state. Sent once a run, within the transaction of that move.
run_ended: Final = Signal()
