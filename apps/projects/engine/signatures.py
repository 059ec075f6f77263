"""Verification of signatures with the project's secret, compared in constant time."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import secrets
from typing import Final

from apps.projects.engine.refusals import ProjectInputError

# Allowed clock difference; a signed body can be replayed within this time.
TOLERANCE_SECONDS: Final = 300
# Prefix of Standard Webhooks; the rest of the secret is the key in base64.
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the mark of a secret, none itself
_SECRET_BYTES: Final = 30
_TOKEN_PURPOSE: Final = b"crawlyard registry push"


class SignatureRefused(ProjectInputError):
    """The signature is missing, wrong or expired."""


def new_secret() -> str:
    """Return a new secret for all kinds of senders: letters and digits after the prefix."""
    while True:
        text = base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
        if text.isalnum():
            return SECRET_PREFIX + text


def registry_token(secret: str) -> str:
    """Return the token for registries, which cannot sign; valid for their form of delivery only."""
    return hmac.new(secret.encode(), _TOKEN_PURPOSE, hashlib.sha256).hexdigest()[:40]


def check_hex(secret: str, body: bytes, signature: str, *, prefix: str = "") -> None:
    """Check an HMAC-SHA256 of the body in hex. Raises ``SignatureRefused``.

    GitHub's signature has the prefix ``sha256=``, Gitea's has none.
    """
    if not signature:
        raise SignatureRefused("signature_missing")
    expected = prefix + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    _same(expected, signature)


def check_token(expected: str, token: str) -> None:
    """Check a plain token, as sent by GitLab. Raises ``SignatureRefused``."""
    if not token:
        raise SignatureRefused("signature_missing")
    _same(expected, token)


def check_standard(
    secret: str, body: bytes, *, message_id: str, timestamp: str, signatures: str, now: float
) -> None:
    """Check a Standard Webhooks signature: ``v1,<base64>`` over ID, timestamp and body.

    ``signatures`` may contain several, of which one must be valid. Raises ``SignatureRefused``.
    """
    if not (message_id and timestamp and signatures):
        raise SignatureRefused("signature_missing")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise SignatureRefused("timestamp_malformed")
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = [
        base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()) for key in _keys(secret)
    ]
    given = [part[3:].encode() for part in signatures.split(" ")[:16] if part.startswith("v1,")]
    # Compare all, so that the time does not depend on which one is valid.
    matches = [hmac.compare_digest(signature, other) for signature in expected for other in given]
    if not any(matches):
        raise SignatureRefused("signature_wrong")
    if abs(now - int(timestamp)) > TOLERANCE_SECONDS:
        raise SignatureRefused("timestamp_too_far", limit=TOLERANCE_SECONDS)


def _keys(secret: str) -> list[bytes]:
    """Return the possible keys: the secret as bytes, and decoded as the standard's libraries do."""
    keys = [secret.encode()]
    with contextlib.suppress(binascii.Error, ValueError):
        keys.append(base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True))
    return [key for key in keys if key]


def _same(expected: str, given: str) -> None:
    if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace")):
        raise SignatureRefused("signature_wrong")
