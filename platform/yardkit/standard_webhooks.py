"""Signs what is POSTed to others as Standard Webhooks asks for.

    webhook-id, webhook-timestamp
    webhook-signature: v1,<base64 of HMAC-SHA256(secret, "id.timestamp.body")> [v1,...]

The id stays the same however often a message is sent, the timestamp is that of the attempt.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

# The mark of a secret whose rest is base64.
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the mark of a secret, none itself
LEAST_CHARACTERS: Final = 16


def secret_problem(secret: str) -> str:
    """What is wrong with a secret, without it: ``short``, ``base64``; "" when it can sign."""
    if secret.startswith(SECRET_PREFIX):
        try:
            base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except ValueError:
            return "base64"
    return "short" if len(secret) < LEAST_CHARACTERS else ""


def sign(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """One signature. Raises ``ValueError`` for a secret whose base64 is none."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(_key(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def signed_headers(
    secrets: Sequence[str], message_id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """The three headers; with several secrets, newest first, receivers may change theirs."""
    at = str(timestamp)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": at,
        "webhook-signature": " ".join(sign(each, message_id, at, body) for each in secrets),
    }


def _key(secret: str) -> bytes:
    """As the libraries of the standard read it: after ``whsec_`` comes base64."""
    prefix, found, rest = secret.partition(SECRET_PREFIX)
    if found and not prefix:
        return base64.b64decode(rest)
    return secret.encode()
