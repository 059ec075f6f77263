"""Signatures as the libraries of the standard make them."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from apps.projects.engine.signatures import SignatureRefused, check_standard
from yardkit.standard_webhooks import secret_problem, sign, signed_headers

NEW, OLD = "a new secret of some length", "an old secret of some length"


def test_a_secret_of_the_standards_libraries_is_decoded() -> None:
    key = b"0123456789abcdef"
    signature = sign(f"whsec_{base64.b64encode(key).decode()}", "m1", "1700000000", b"{}")
    expected = hmac.new(key, b"m1.1700000000.{}", hashlib.sha256).digest()
    assert signature == f"v1,{base64.b64encode(expected).decode()}"


def test_the_standards_own_example() -> None:
    # From the reference implementations of the standard.
    signature = sign(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "1614265330",
        b'{"test": 2432232314}',
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_receivers_may_change_their_secret() -> None:
    headers = signed_headers([NEW, OLD], "m1", 1700000000, b"{}")
    for secret in (NEW, OLD):
        check_standard(
            secret,
            b"{}",
            message_id=headers["webhook-id"],
            timestamp=headers["webhook-timestamp"],
            signatures=headers["webhook-signature"],
            now=1700000000,
        )
    with pytest.raises(SignatureRefused):
        check_standard(
            "another secret of some length",
            b"{}",
            message_id="m1",
            timestamp="1700000000",
            signatures=headers["webhook-signature"],
            now=1700000000,
        )


def test_what_cannot_sign_is_known_before() -> None:
    assert secret_problem("") == secret_problem("short") == "short"
    assert secret_problem("whsec_no-base64-at-all") == "base64"
    assert secret_problem(NEW) == ""
    assert secret_problem("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") == ""
