"""What must hold before a process starts."""

from __future__ import annotations

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from apps.runtime.checks import START_TAG


def problems(**settings: object) -> list[str]:
    with override_settings(**settings):
        return [str(problem.id) for problem in run_checks(tags=[START_TAG])]


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("sqlite:///broker.sqlite3", False),
        ("amqp://guest:guest@127.0.0.1:5672/", False),
        ("amqp://guest:guest@localhost/", False),
        ("amqp://guest:guest@[::1]/", False),
        ("amqp://guest:guest@rabbit.internal/", True),
        ("amqps://guest:guest@10.0.0.5/", True),
        ("amqp://rabbit.internal/", True),
        ("amqp://gu%65st:guest@rabbit.internal/", True),
        ("amqp://guest:better@rabbit.internal/", False),
        ("amqp://crawlyard:guest@rabbit.internal/", False),
    ],
)
def test_the_broker_account_everybody_knows_stays_on_this_host(url: str, refused: bool) -> None:
    assert problems(BROKER_URL=url) == (["runtime.E001"] if refused else [])
    assert "runtime.E001" not in problems(BROKER_URL=url, DEBUG=True)


@pytest.mark.parametrize("keys", [[], ["a passphrase"], ["é" * 44]])
def test_secrets_need_proper_keys(keys: list[str]) -> None:
    assert problems(SECRETBOX_KEYS=keys, BROKER_URL="sqlite:///b") == ["runtime.E002"]
