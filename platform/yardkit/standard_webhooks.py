"""Signatures of outgoing webhooks by the Standard Webhooks specification.

    webhook-id, webhook-timestamp
    webhook-signature: v1,<base64 of HMAC-SHA256(secret, "id.timestamp.body")> [v1,...]

The id is the same for every attempt to deliver a message; the timestamp is that of the attempt.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

# Prefix of a secret in base64.
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the mark of a secret, none itself
LEAST_CHARACTERS: Final = 16


def secret_problem(secret: str) -> str:
    """Return why a secret cannot sign: ``short``, ``base64``; "" for a valid one."""
    if secret.startswith(SECRET_PREFIX):
        try:
            base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except ValueError:
            return "base64"
    return "short" if len(secret) < LEAST_CHARACTERS else ""


def sign(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """Return one signature. Raises ``ValueError`` for invalid base64 in the secret."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(_key(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def signed_headers(
    secrets: Sequence[str], message_id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """Return the three headers, with a signature by each secret, newest first.

    Several signatures let receivers rotate their secret.
    """
    at = str(timestamp)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": at,
        "webhook-signature": " ".join(sign(secret, message_id, at, body) for secret in secrets),
    }


def _key(secret: str) -> bytes:
    """Return the key bytes: base64-decoded after ``whsec_``, as the specification's libraries
    do.
    """
    prefix, marker, rest = secret.partition(SECRET_PREFIX)
    if marker and not prefix:
        return base64.b64decode(rest)
    return secret.encode()
