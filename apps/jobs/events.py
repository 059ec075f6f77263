"""What pages are told about runs."""

from __future__ import annotations

from typing import Final

RUN_CHANGED: Final = "run.changed"
