"""Events pushed to open browser pages."""

from __future__ import annotations

from typing import Final

# An incident opened, changed or ended: ``{"incident": 7, "open": true}``.
INCIDENTS_CHANGED: Final = "incidents.changed"
