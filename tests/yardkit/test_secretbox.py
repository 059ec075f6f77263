"""Sealed values: keys in and out of use, and what is no key or no sealed value."""

from __future__ import annotations

import base64

import pytest

from yardkit.secretbox import BadKey, NotSealed, SecretBox, SecretError, WrongKey, generate_key


def test_seal_and_open() -> None:
    box = SecretBox([generate_key()])
    sealed = box.seal("密码 hunter2")
    assert "hunter2" not in sealed
    assert sealed.isascii()
    assert box.open(sealed) == "密码 hunter2"
    assert box.seal("x") != box.seal("x")
    assert box.open(box.seal("")) == ""


def test_rotation() -> None:
    old, new = generate_key(), generate_key()
    sealed = SecretBox([old]).seal("secret")
    both = SecretBox([new, old])
    assert both.open(sealed) == "secret"
    rotated = both.rotate(sealed)
    assert SecretBox([new]).open(rotated) == "secret"
    with pytest.raises(WrongKey):
        SecretBox([old]).open(rotated)


def test_another_key_or_a_changed_value() -> None:
    box = SecretBox([generate_key()])
    sealed = box.seal("secret")
    changed = bytearray(base64.urlsafe_b64decode(sealed))
    changed[-1] ^= 1
    for value in (SecretBox([generate_key()]).seal("x"), base64.urlsafe_b64encode(changed)):
        text = value if isinstance(value, str) else value.decode()
        for action in (box.open, box.rotate):
            with pytest.raises(WrongKey, match="SECRETBOX_KEYS"):
                action(text)


@pytest.mark.parametrize("value", ["", "hunter2", "gAAAA", "é", "\0", "A" * 200])
def test_what_was_never_sealed(value: str) -> None:
    box = SecretBox([generate_key()])
    for action in (box.open, box.rotate):
        with pytest.raises(NotSealed) as caught:
            action(value)
        assert not value or value not in str(caught.value)


@pytest.mark.parametrize(
    "keys", [[], [""], ["my passphrase"], ["x" * 44], ["é" * 44], [generate_key(), "short"]]
)
def test_bad_keys_name_the_setting(keys: list[str]) -> None:
    with pytest.raises(BadKey) as caught:
        SecretBox(keys, setting="VAULT_KEYS")
    text = str(caught.value)
    assert text.startswith("VAULT_KEYS: ")
    assert "generate_key()" in text
    assert "passphrase" not in " ".join(keys) or "my passphrase" not in text
    assert isinstance(caught.value, SecretError)
