"""Size limits."""

from __future__ import annotations

from typing import Final

MAX_BATCH: Final = 10_000
# Data of one request (bytes): MongoDB documents have at most 16 MiB, history included.
MAX_DATA_BYTES: Final = 15 * 1024 * 1024
MAX_OWNER: Final = 200
MAX_STEPS: Final = 100
# Signed 64-bit: the range of every store.
MAX_ID: Final = 2**63 - 1
MAX_TS: Final = 253_402_300_799_999
# Body of one HTTP call (bytes): the largest request in Base64, or many small ones.
MAX_BODY_BYTES: Final = 32 * 1024 * 1024
# JSON result of a request (bytes).
MAX_RESULT_BYTES: Final = 64 * 1024
# Text of one history step (characters); longer texts are truncated.
MAX_TEXT: Final = 500
MAX_NAME: Final = 63
