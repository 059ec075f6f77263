"""The wanted number goes to whoever wants to know it, until that one has heard it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from apps.projects.engine.signatures import SignatureRefused, check_standard
from apps.requeststore.models import ScaleState
from apps.requeststore.services.scale_advice import Advice
from apps.requeststore.services.scale_webhook import send_scale
from apps.requeststore.tasks import scale
from crawlyard.settings.requests import scale_webhook
from tests.jobs.factories import NOW
from yardkit.env import Env, EnvError

pytestmark = pytest.mark.django_db

SECRET = "a secret of some length"


class Scaler:
    """An HTTP server that is told, and answers what a test wants."""

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, str], bytes]] = []
        self.status = 200
        heard = self.heard
        scaler = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                heard.append(({k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(scaler.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args: Any) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/scale?token=t0ken"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wanted(self) -> list[int]:
        return [json.loads(body)["wanted"] for _headers, body in self.heard]


@pytest.fixture
def scaler(settings: Any) -> Iterator[Scaler]:
    scaler = Scaler()
    settings.SCALE_WEBHOOK_URL, settings.SCALE_WEBHOOK_SECRET = scaler.url, SECRET
    yield scaler
    scaler.server.shutdown()
    scaler.server.server_close()


def advice(wanted: int, seconds: float = 0) -> Advice:
    """It is wanted now, as ``decide_scale`` would have written."""
    state, _made = ScaleState.objects.get_or_create(pk=1)
    if state.wanted != wanted:
        state.tries, state.next_try_at = 0, None
    state.wanted = wanted
    state.save()
    return Advice(1, wanted, wanted, 9, [], NOW + timedelta(seconds=seconds))


@pytest.mark.covers("S4.28")
def test_a_change_is_told_once_and_signed(scaler: Scaler) -> None:
    assert send_scale(advice(2))
    assert not send_scale(advice(2, 10))
    assert send_scale(advice(3, 20))
    assert scaler.wanted() == [2, 3]
    headers, body = scaler.heard[0]
    assert json.loads(body)["running"] == 1
    signed: dict[str, Any] = {
        "message_id": headers["webhook-id"],
        "timestamp": headers["webhook-timestamp"],
        "signatures": headers["webhook-signature"],
        "now": NOW.timestamp(),
    }
    check_standard(SECRET, body, **signed)
    with pytest.raises(SignatureRefused):
        check_standard(SECRET, body + b" ", **signed)


@pytest.mark.fault
@pytest.mark.covers("S4.28")
def test_it_is_told_again_until_it_was_heard(scaler: Scaler) -> None:
    scaler.status = 503
    assert not send_scale(advice(2))
    assert not send_scale(advice(2, 5)), "not before the pause is over"
    assert len(scaler.heard) == 1
    state = ScaleState.objects.get()
    assert (state.told, state.tries, state.problem) == (None, 1, "it answers HTTP 503")
    assert not send_scale(advice(2, 16))
    assert not send_scale(advice(2, 26)), "the pauses grow"
    assert len(scaler.heard) == 2
    # A newer number is told at once; the older one never again.
    scaler.status = 204
    assert send_scale(advice(5, 27))
    assert scaler.wanted() == [2, 2, 5]
    state.refresh_from_db()
    assert (state.told, state.tries, state.problem) == (5, 0, "")
    assert not send_scale(advice(5, 2000))


@pytest.mark.fault
def test_a_server_that_is_gone_is_no_error_and_its_address_no_news(
    scaler: Scaler, caplog: pytest.LogCaptureFixture
) -> None:
    scaler.server.shutdown()
    scaler.server.server_close()
    assert not send_scale(advice(2))
    assert ScaleState.objects.get().problem == "no answer (refused)"
    assert "t0ken" not in caplog.text


def test_without_the_setting_nobody_is_told(scaler: Scaler, settings: Any) -> None:
    settings.SCALE_WEBHOOK_URL = ""
    assert not send_scale(advice(2))
    assert scaler.heard == []


def test_settings_are_judged_where_they_are_read() -> None:
    good = {"SCALE_WEBHOOK_URL": "https://scaler/x", "SCALE_WEBHOOK_SECRET": SECRET}
    assert scale_webhook(Env({})) == ("", "")
    assert scale_webhook(Env(good)) == ("https://scaler/x", SECRET)
    for wrong in (
        {"SCALE_WEBHOOK_URL": "ftp://scaler/t0ken"},
        {"SCALE_WEBHOOK_SECRET": ""},
        {"SCALE_WEBHOOK_SECRET": "t0ken"},
        {"SCALE_WEBHOOK_SECRET": "whsec_t0ken-of-no-base64"},
    ):
        with pytest.raises(EnvError, match=next(iter(wrong))) as refused:
            scale_webhook(Env(good | wrong))
        assert "t0ken" not in str(refused.value)


def test_the_task_decides_and_tells(scaler: Scaler) -> None:
    scale()
    scale()
    assert scaler.wanted() == [1]
    assert ScaleState.objects.get().told == 1
