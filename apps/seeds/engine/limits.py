"""Size limits of seed calls over HTTP."""

from __future__ import annotations

from typing import Final

# Limit of one call; messages of the queue have the same limit.
MAX_BODY_BYTES: Final = 8 * 1024 * 1024
# Limit of an uploaded file of seeds; Django stores it on disk during the request.
MAX_IMPORT_BYTES: Final = 256 * 1024 * 1024
