"""Where mail goes out, read from one address."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawlyard.settings.mail import FILES, SMTP, mail
from yardkit.env import Env, EnvError

DATA = Path("/data")


def test_without_a_server_mails_are_files() -> None:
    found = mail(Env({}), DATA)
    assert (found.backend, found.folder, found.sender) == (
        FILES,
        "/data/mail",
        "crawlyard@localhost",
    )
    assert mail(Env({"EMAIL_URL": "file:///var/mails"}), DATA).folder == "/var/mails"


def test_a_server_is_one_address() -> None:
    url = "smtp://ops%40example.com:p%2Fss@mail.example.com:587/?tls=1"
    found = mail(Env({"EMAIL_URL": url, "EMAIL_FROM": "Yard <yard@example.com>"}), DATA)
    assert (found.backend, found.host, found.port) == (SMTP, "mail.example.com", 587)
    assert (found.user, found.password) == ("ops@example.com", "p/ss")
    assert (found.is_tls, found.is_ssl) == (True, False)
    assert "p/ss" not in repr(found)
    found = mail(Env({"EMAIL_URL": "smtps://mail.example.com"}), DATA)
    assert (found.port, found.is_tls, found.is_ssl) == (465, False, True)
    assert mail(Env({"EMAIL_URL": "smtp://localhost"}), DATA).port == 25


@pytest.mark.parametrize(
    "url",
    [
        "mail.example.com",
        "http://user:s3cret@mail.example.com",
        "smtp://user:s3cret@:25",
        "smtp://user:s3cret@host:x",
        "smtp://user:s3cret@host/?tls=yes",
        "smtp://user:s3cret@host/?starttls=1",
        "file://folder",
    ],
)
def test_what_is_no_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(EnvError, match="EMAIL_URL") as refused:
        mail(Env({"EMAIL_URL": url}), DATA)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("sender", ["nobody", "a@example.com\r\nBcc: b@example.com"])
def test_a_sender_has_an_address(sender: str) -> None:
    with pytest.raises(EnvError, match="EMAIL_FROM"):
        mail(Env({"EMAIL_FROM": sender}), DATA)
