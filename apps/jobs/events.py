"""Names of the page notifications of this app, and its signals."""

from __future__ import annotations

from typing import Final

from django.dispatch import Signal

RUN_CHANGED: Final = "run.changed"

# Arguments: run, now. The run has entered a final state. Sent once per run, within the transaction
# of that state change.
run_ended: Final = Signal()
