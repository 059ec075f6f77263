"""How much may be sent about seeds at once over HTTP."""

from __future__ import annotations

from typing import Final

# Of one call; seeds in messages are no larger together.
MAX_BODY_BYTES: Final = 8 * 1024 * 1024
# Of a file of seeds, as it is sent; Django keeps it on disk until it has all come.
MAX_IMPORT_BYTES: Final = 256 * 1024 * 1024
