"""Who is believed."""

from __future__ import annotations

import base64
import gzip
from datetime import UTC, datetime, timedelta

import pytest

from apps.projects.engine.senders import (
    IncomingDelivery,
    WebhookSender,
    check_sender,
    delivery_id_of,
    event_of,
    sender_of,
)
from apps.projects.engine.signatures import SignatureRefused, new_secret, registry_token
from tests.projects.webhooks import SECRET, Signed, gitea, github, gitlab, signed

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
BODY = {"tag": "a/b/1", "说明": "新"}


def incoming(sent: Signed) -> IncomingDelivery:
    return IncomingDelivery(
        {name.lower(): value for name, value in sent.headers.items()}, sent.body
    )


def verdict(sent: IncomingDelivery, *, secret: str = SECRET, now: datetime = NOW) -> str:
    try:
        check_sender(sender_of(sent), sent, secret=secret, now=now)
    except SignatureRefused as refusal:
        return refusal.code
    return "believed"


def all_kinds(secret: str = SECRET) -> dict[str, Signed]:
    return {
        "github": github("push", BODY, secret=secret),
        "gitlab": gitlab(BODY, secret=secret),
        "gitea": gitea("push", BODY, secret=secret),
        "forgejo": gitea("push", BODY, secret=secret, brand="Forgejo"),
        "signed": signed(BODY, secret=secret, at=NOW.timestamp()),
        "registry": Signed(b"{}", {"Authorization": f"Bearer {registry_token(secret)}"}),
    }


KINDS = list(all_kinds())
BODIES_SIGNED = ["github", "gitea", "forgejo", "signed"]


@pytest.mark.covers("S1.4", "S1.6")
@pytest.mark.parametrize("kind", KINDS)
def test_whoever_knows_the_secret_is_believed(kind: str) -> None:
    sent = incoming(all_kinds()[kind])
    assert sender_of(sent) == {"forgejo": "gitea"}.get(kind, kind)
    assert verdict(sent) == "believed"


@pytest.mark.parametrize("kind", KINDS)
def test_another_secret_is_not(kind: str) -> None:
    assert verdict(incoming(all_kinds("other")[kind])) == "signature_wrong"
    assert verdict(incoming(all_kinds()[kind]), secret=SECRET + "x") == "signature_wrong"


@pytest.mark.parametrize("kind", BODIES_SIGNED)
@pytest.mark.parametrize(
    "change",
    [
        lambda body: body[:-1],
        lambda body: body + b"\n",
        lambda body: body.replace(b" ", b""),
        lambda body: body.decode("unicode_escape").encode("utf-8"),
        lambda body: b"\xef\xbb\xbf" + body,
        gzip.compress,
        lambda body: b"",
    ],
    ids=["truncated", "longer", "spaces", "re-encoded", "mark", "packed", "empty"],
)
def test_another_body_is_not(kind: str, change: object) -> None:
    sent = all_kinds()[kind]
    sent.body = change(sent.body)  # type: ignore[operator]
    assert verdict(incoming(sent)) == "signature_wrong"


@pytest.mark.parametrize("kind", BODIES_SIGNED)
@pytest.mark.parametrize(
    "change",
    [
        lambda value: value[:-1],
        lambda value: value + "0",
        lambda value: value[:-2] + "ä0",
        lambda value: value + "\n",
        lambda value: "sha1=" + value[7:],
    ],
)
def test_a_damaged_signature_is_not(kind: str, change: object) -> None:
    sent = all_kinds()[kind]
    for name in list(sent.headers):
        if "signature" in name.lower():
            sent.headers[name] = change(sent.headers[name])  # type: ignore[operator]
    assert verdict(incoming(sent)) == "signature_wrong"


@pytest.mark.parametrize("kind", KINDS)
def test_no_signature(kind: str) -> None:
    sent = all_kinds()[kind]
    for name in list(sent.headers):
        if any(word in name.lower() for word in ("signature", "token", "authorization")):
            del sent.headers[name]
    assert verdict(incoming(sent)) == "signature_missing"


def test_what_nobody_sends() -> None:
    assert sender_of(IncomingDelivery({}, b"{}")) is None
    assert verdict(IncomingDelivery({}, b"{}")) == "signature_missing"
    assert (
        verdict(IncomingDelivery({"authorization": f"Basic {SECRET}"}, b"")) == "signature_missing"
    )
    # The secret itself is no token of a registry, nor the other way round.
    assert verdict(IncomingDelivery({}, b"{}", token=SECRET)) == "signature_wrong"
    assert verdict(IncomingDelivery({}, b"{}", token=registry_token(SECRET))) == "believed"
    spent = IncomingDelivery({"x-gitlab-token": registry_token(SECRET)}, b"{}")
    assert verdict(spent) == "signature_wrong"


@pytest.mark.parametrize(("seconds", "said"), [
    (0, "believed"), (-299, "believed"), (299, "believed"),
    (-301, "timestamp_too_far"), (301, "timestamp_too_far"), (86400, "timestamp_too_far"),
])  # fmt: skip
def test_a_signed_body_is_fresh(seconds: int, said: str) -> None:
    sent = incoming(signed(BODY, at=NOW.timestamp()))
    assert verdict(sent, now=NOW + timedelta(seconds=seconds)) == said


@pytest.mark.parametrize("stamp", ["", "x", "1.5", "-1", "1e9", "١٢", "9" * 13])
def test_times_that_are_none(stamp: str) -> None:
    sent = signed(BODY, at=NOW.timestamp())
    sent.headers["webhook-timestamp"] = stamp
    assert verdict(incoming(sent)) in ("signature_missing", "timestamp_malformed")


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp"])
def test_id_and_time_are_signed(name: str) -> None:
    sent = signed(BODY, at=NOW.timestamp())
    sent.headers[name] = str(int(NOW.timestamp()) + 1)
    assert verdict(incoming(sent)) == "signature_wrong"


def test_libraries_of_the_standard_are_understood() -> None:
    """They take the base64 behind the prefix for the key, and may send several signatures."""
    secret = new_secret()
    key = base64.b64decode(secret.removeprefix("whsec_"))
    sent = signed(BODY, at=NOW.timestamp(), key=key)
    sent.headers["webhook-signature"] = f"v1a,xx v1,AAAA {sent.headers['webhook-signature']}"
    assert verdict(incoming(sent), secret=secret) == "believed"


def test_gitlab_signs_too() -> None:
    sent = signed(BODY, at=NOW.timestamp())
    sent.headers["X-Gitlab-Event"] = "Tag Push Hook"
    assert sender_of(incoming(sent)) is WebhookSender.GITLAB
    assert verdict(incoming(sent)) == "believed"
    sent.body += b" "
    assert verdict(incoming(sent)) == "signature_wrong"


def test_secrets_suit_every_sender() -> None:
    made = {new_secret() for _ in range(50)}
    assert len(made) == 50
    assert all(each.removeprefix("whsec_").isalnum() and len(each) == 46 for each in made)


def test_ids_and_events() -> None:
    sent = incoming(github("push", BODY, delivery="abc"))
    assert (
        delivery_id_of(WebhookSender.GITHUB, sent, now=NOW),
        event_of(WebhookSender.GITHUB, sent),
    ) == ("abc", "push")
    for strange in ("x" * 201, "a\x00b", "a\u202eb"):
        hashed = delivery_id_of(
            WebhookSender.GITHUB, IncomingDelivery({"x-github-delivery": strange}, b""), now=NOW
        )
        assert hashed.startswith("id:")
        assert len(hashed) < 200
    without = IncomingDelivery({}, b"{}")
    first = delivery_id_of(WebhookSender.REGISTRY, without, now=NOW)
    assert first == delivery_id_of(WebhookSender.REGISTRY, without, now=NOW + timedelta(minutes=59))
    assert first != delivery_id_of(WebhookSender.REGISTRY, without, now=NOW + timedelta(minutes=60))
    assert first != delivery_id_of(WebhookSender.REGISTRY, IncomingDelivery({}, b"{ }"), now=NOW)


def test_headers_are_kept_without_secrets() -> None:
    for sent in all_kinds().values():
        sent.headers |= {"Cookie": "c", "X-Request-Id": "a\x1b[31m" + "b" * 600}
        kept = incoming(sent).kept_headers
        assert SECRET not in str(kept)
        assert registry_token(SECRET) not in str(kept)
        assert not {name for name in kept if "sign" in name or "token" in name or "auth" in name}
        assert len(kept["x-request-id"]) == 500
        assert "\x1b" not in kept["x-request-id"]
