"""Names of the websocket groups and signals of this app."""

from __future__ import annotations

from typing import Final

# {"stream": "run:7"}: lines were added. The page then loads the lines that it lacks.
LOG_GREW: Final = "log.grew"
