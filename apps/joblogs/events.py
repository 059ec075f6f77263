"""Names of the websocket groups and signals of this app."""

from __future__ import annotations

from typing import Final

# {"stream": "run:7"}: lines were added. The page asks for what it has not got.
LOG_GREW: Final = "log.grew"
