"""Encryption of secrets at rest, with Fernet keys that can be rotated.

The first key encrypts, every key decrypts. To rotate, put the new key in front, ``rotate`` each
value, then remove the old key.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

DEFAULT_SETTING: Final = "SECRETBOX_KEYS"

_VERSION: Final = 0x80
# version, time, IV, one block, HMAC
_SHORTEST_BYTES: Final = 1 + 8 + 16 + 16 + 32


class SecretError(ValueError):
    """Base class of this module's errors. No text contains a key or a secret."""


class BadKey(SecretError):
    """Invalid key; the text names the setting and the command that makes a valid one."""


class WrongKey(SecretError):
    """A sealed value that none of the keys decrypts: sealed with another key, or changed."""


class NotSealed(SecretError):
    """A value that this module did not seal."""


class SecretBox:
    """Seals and opens text.

    Args:
        keys: newest first; each is 32 random bytes in base64url, as ``generate_key`` returns.
        setting: name of the setting with the keys, for errors.
    """

    def __init__(self, keys: Sequence[str], *, setting: str = DEFAULT_SETTING) -> None:
        if not keys:
            raise BadKey(f"{setting}: there is no key; set it to the output of generate_key()")
        self._setting = setting
        self._fernet = MultiFernet(
            [self._fernet_of(key, number) for number, key in enumerate(keys, start=1)]
        )

    def _fernet_of(self, key: str, number: int) -> Fernet:
        try:
            return Fernet(key.strip().encode("ascii"))
        except (ValueError, binascii.Error) as error:
            raise BadKey(
                f"{self._setting}: key {number} is no Fernet key (32 random bytes in base64url,"
                " 44 characters); a passphrase will not do, use generate_key()"
            ) from error

    def seal(self, secret: str) -> str:
        """Return the sealed form: ASCII, different each time."""
        return self._fernet.encrypt(secret.encode()).decode("ascii")

    def open(self, sealed: str) -> str:
        """Return the secret. Raises ``WrongKey`` or ``NotSealed``."""
        try:
            return self._fernet.decrypt(_token(sealed)).decode()
        except InvalidToken as error:
            raise WrongKey(f"no key of {self._setting} opens this value") from error

    def rotate(self, sealed: str) -> str:
        """Return the same secret sealed with the newest key. Raises like ``open``."""
        try:
            return self._fernet.rotate(_token(sealed)).decode("ascii")
        except InvalidToken as error:
            raise WrongKey(f"no key of {self._setting} opens this value") from error


def generate_key() -> str:
    """Return a new random key."""
    return Fernet.generate_key().decode("ascii")


def _token(sealed: str) -> bytes:
    try:
        token = sealed.encode("ascii")
        raw = base64.urlsafe_b64decode(token)
    except (ValueError, binascii.Error) as error:
        raise NotSealed("this is no sealed value") from error
    if len(raw) < _SHORTEST_BYTES or raw[0] != _VERSION:
        raise NotSealed("this is no sealed value")
    return token
