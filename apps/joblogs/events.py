"""What pages are told."""

from __future__ import annotations

from typing import Final

# {"stream": "run:7"}: lines were added. The page asks for what it has not got.
LOG_GREW: Final = "log.grew"
