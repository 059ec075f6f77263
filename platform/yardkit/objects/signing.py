"""Signed addresses of objects in a folder, served by ``yardkit.objects.server``.

``<base>/<key>?e=<Unix seconds>&s=<HMAC-SHA256 over method, key and expiry>``. S3 has its own
(``BucketStore.sign``).
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from typing import Final
from urllib.parse import parse_qsl, quote, unquote

from yardkit.objects.base import checked

METHODS: Final = frozenset({"GET", "PUT", "DELETE"})
# 192 bits: short enough for each message, too long to guess.
_SIGNATURE_BYTES: Final = 24
_PURPOSE: Final = b"crawlyard.objects.v1"


class AddressInvalid(Exception):
    """An address that gives no access: altered, of another method or installation, or expired."""


class AddressSigner:
    """Makes and checks signed addresses; thread-safe.

    Args:
        base_url: address of the object server, as agents and runs reach it.
        secret: of the installation (``SECRET_KEY``).
    """

    def __init__(self, base_url: str, secret: str) -> None:
        if not secret:
            raise ValueError("signed addresses need a secret")
        self._base_url = base_url.rstrip("/")
        self._key = hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).digest()

    def sign(self, method: str, key: str, expires_at: int) -> str:
        """Return the address of an object for one method until ``expires_at`` (Unix seconds).

        Raises ``ValueError`` for an invalid key or method.
        """
        if method not in METHODS:
            raise ValueError(f"{method!r} is no method of a signed address")
        signature = self._signature(method, checked(key), str(expires_at))
        return f"{self._base_url}/{quote(key)}?e={expires_at}&s={signature}"

    def key_of(self, method: str, path: str, query: str, now: float) -> str:
        """Return the key that an address gives access to.

        Args:
            path: of the request after the prefix of ``base_url``, without its first slash, quoted.

        Raises:
            AddressInvalid: says why, never what would be right.
        """
        pairs = parse_qsl(query, keep_blank_values=True)
        values = dict(pairs)
        if len(pairs) != 2 or values.keys() != {"e", "s"}:
            raise AddressInvalid("no signature")
        expires, signature = values["e"], values["s"]
        try:
            key = checked(unquote(path, errors="strict"))
        except ValueError as error:
            raise AddressInvalid("no key of an object") from error
        if method not in METHODS or not hmac.compare_digest(
            self._signature(method, key, expires).encode(), signature.encode("utf-8", "replace")
        ):
            raise AddressInvalid("the signature does not match")
        # Signed, so it is a number.
        if now >= int(expires):
            raise AddressInvalid("the address has expired")
        return key

    def _signature(self, method: str, key: str, expires: str) -> str:
        text = f"{method}\n{key}\n{expires}".encode("utf-8", "replace")
        digest = hmac.new(self._key, text, hashlib.sha256).digest()
        return urlsafe_b64encode(digest[:_SIGNATURE_BYTES]).decode()
