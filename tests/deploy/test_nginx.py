"""What nginx and the web say together."""

from __future__ import annotations

from typing import Any

from django.test import Client

from tests.e2e.balancer import CONFIGURATION


def test_browsers_are_told_once_to_keep_to_https(settings: Any) -> None:
    settings.SECURE_HSTS_SECONDS = 31536000
    answer = Client().get("/healthz", secure=True)
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
    lines = CONFIGURATION.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if "add_header" in line and "Strict-Transport" in line] == []
