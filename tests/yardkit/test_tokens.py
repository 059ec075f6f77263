"""Tokens of runs."""

from __future__ import annotations

import pytest

from yardkit.tokens import sign_run_token, verify_run_token


def test_a_token_is_of_one_run_and_one_secret() -> None:
    token = sign_run_token("secret", 7)
    assert token.startswith("r1.")
    assert len(token) == 35
    assert verify_run_token("secret", 7, token)
    assert not verify_run_token("secret", 8, token)
    assert not verify_run_token("other", 7, token)


@pytest.mark.parametrize("token", ["", "r1.", "r2." + "0" * 32, "\0", "é", "\udce9", "r1." * 9999])
def test_nonsense_is_no_token(token: str) -> None:
    assert not verify_run_token("secret", 7, token)


def test_a_secret_is_needed() -> None:
    with pytest.raises(ValueError, match="secret"):
        sign_run_token("", 7)
