"""Size limits."""

from __future__ import annotations

from typing import Final

MAX_BATCH: Final = 10_000
# Of the data of one request; MongoDB takes documents of 16 MiB, and the steps need room as well.
MAX_DATA_BYTES: Final = 15 * 1024 * 1024
MAX_OWNER: Final = 200
MAX_STEPS: Final = 100
# 64-bit, signed: what every store can keep.
MAX_ID: Final = 2**63 - 1
MAX_TS: Final = 253_402_300_799_999
# Of one call over HTTP: the largest request as base64, or many small ones.
MAX_BODY_BYTES: Final = 32 * 1024 * 1024
# What an owner says of the end of a request: a small JSON object.
MAX_RESULT_BYTES: Final = 64 * 1024
# Of one line of a story; what is longer is cut.
MAX_TEXT: Final = 500
MAX_NAME: Final = 63
