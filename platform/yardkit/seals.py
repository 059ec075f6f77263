"""Sealed secrets for transport through a queue, readable by one process only.

    key = SealKey()                                     # the receiver's; key.public is published
    sealed = seal(key.public, b"secret", purpose="run 7")
    key.open(sealed, purpose="run 7")

X25519 with a fresh key pair for each seal, HKDF-SHA256, ChaCha20-Poly1305: a reader of the queue,
or of a copy of it, learns nothing. The sender is not authenticated.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from yardkit.secretbox import NotSealed, WrongKey

KEY_BYTES: Final = 32
_TAG_BYTES: Final = 16
# Each seal has its own key, used once, so a constant nonce is safe.
_NONCE: Final = bytes(12)


class SealKey:
    """Key pair that exists as long as its process; ``public`` is not secret."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def open(self, sealed: bytes, *, purpose: str) -> bytes:
        """Return the secret.

        Raises ``NotSealed``, or ``WrongKey`` for another key, another purpose or changed bytes.
        """
        if len(sealed) < KEY_BYTES + _TAG_BYTES:
            raise NotSealed("this is no sealed value")
        theirs, body = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(theirs))
            return _cipher(shared, theirs + self.public).decrypt(_NONCE, body, purpose.encode())
        except (InvalidTag, ValueError) as error:
            raise WrongKey("this was sealed for another key or purpose, or changed") from error


def seal(public: bytes, secret: bytes, *, purpose: str) -> bytes:
    """Seal for the holder of ``public``. Raises ``ValueError`` for an invalid public key."""
    once = X25519PrivateKey.generate()
    mine = once.public_key().public_bytes_raw()
    shared = once.exchange(X25519PublicKey.from_public_bytes(public))
    return mine + _cipher(shared, mine + public).encrypt(_NONCE, secret, purpose.encode())


def _cipher(shared: bytes, keys: bytes) -> ChaCha20Poly1305:
    made = HKDF(SHA256(), KEY_BYTES, salt=None, info=b"crawlyard seal v1" + keys)
    return ChaCha20Poly1305(made.derive(shared))
