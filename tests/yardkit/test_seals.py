"""Secrets sealed for one receiver: nobody else opens them, and nothing of them can be changed."""

from __future__ import annotations

import pytest

from yardkit.seals import SealKey, seal
from yardkit.secretbox import NotSealed, WrongKey


def test_only_the_receiver_opens_it_and_only_for_its_purpose() -> None:
    key = SealKey()
    secret = "密码 hunter2".encode()
    sealed = seal(key.public, secret, purpose="run 7")
    assert secret not in sealed
    assert seal(key.public, secret, purpose="run 7") != sealed
    assert key.open(sealed, purpose="run 7") == secret
    for other, purpose in ((SealKey(), "run 7"), (key, "run 8")):
        with pytest.raises(WrongKey):
            other.open(sealed, purpose=purpose)
    for place in (0, 31, 32, len(sealed) - 1):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(WrongKey):
            key.open(bytes(changed), purpose="run 7")
    with pytest.raises(WrongKey):
        key.open(bytes(64), purpose="run 7")
    with pytest.raises(NotSealed):
        key.open(sealed[:47], purpose="run 7")


@pytest.mark.parametrize("public", [b"", b"x", bytes(31), bytes(33), bytes(32)])
def test_what_is_no_public_key_is_refused(public: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        seal(public, b"secret", purpose="")
