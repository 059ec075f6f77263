"""Signed tokens of runs: what a spider shows the center to speak for its run."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

_PREFIX: Final = "r1."
# 128 bits: short enough for every message, far beyond guessing.
_HEX_CHARACTERS: Final = 32


def sign_run_token(secret: str, run: int) -> str:
    """The token of run ``run``, such as ``r1.5f0c...``. Raises ``ValueError`` without a secret."""
    if not secret:
        raise ValueError("a run token needs a secret")
    digest = hmac.new(secret.encode(), f"crawlyard.run-token.v1:{run}".encode(), hashlib.sha256)
    return _PREFIX + digest.hexdigest()[:_HEX_CHARACTERS]


def verify_run_token(secret: str, run: int, token: str) -> bool:
    """Whether ``token`` is the one of ``run``; takes as long for a wrong one as for a right one."""
    return hmac.compare_digest(
        sign_run_token(secret, run).encode(), token.encode("utf-8", "surrogatepass")
    )
