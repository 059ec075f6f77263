"""What the dead-letter page shows of a body."""

from __future__ import annotations

import json
import pickle

import msgspec
import pytest

from apps.runtime.engine.preview import SHOWN_CHARACTERS, preview, printable
from yardkit.protocol import (
    DownloadBatch,
    DownloadRequest,
    DownloadResult,
    DownloadResults,
    RequestItem,
    RunQueued,
    encode,
    encode_request,
)


def mask(values: object) -> dict[str, object]:
    """As the audit trail does it: by name, at any depth."""

    def hide(name: str, value: object) -> object:
        if any(word in name.lower() for word in ("token", "cookie", "authorization")):
            return "•••"
        if isinstance(value, dict):
            return {key: hide(key, item) for key, item in value.items()}
        if isinstance(value, list):
            return [hide("", item) for item in value]
        return value

    hidden = hide("", values)
    assert isinstance(hidden, dict)
    return hidden


def test_a_message_is_shown_with_its_name_and_its_fields() -> None:
    shown = preview(encode(RunQueued(run=7)), mask)
    assert (shown.form, shown.kind, shown.cut) == ("message", "run_queued", False)
    assert json.loads(shown.text) == {"v": 1, "run": 7}


def test_secrets_inside_a_message_are_hidden_at_any_depth() -> None:
    request = DownloadRequest(url="https://a/", headers={"Cookie": "s3cret", "Accept": "*/*"})
    item = RequestItem(1, 1, "a", "", encode_request(request))
    batch = DownloadBatch(run=1, token="r1.s3cret", reply_to="q", items=[item], sent_at=1.0)
    results = DownloadResults(
        run=1,
        agent="a",
        items=[DownloadResult(1, 1, "u", 200, [("Set-Cookie", "s3cret")], b"x" * 5000)],
    )
    shown = preview(encode(batch), mask)
    assert "s3cret" not in shown.text
    assert json.loads(shown.text)["items"][0]["request"]["headers"]["Accept"] == "*/*"
    shown = preview(encode(results), mask)
    assert "s3cret" not in shown.text
    assert "(5000 bytes)" in shown.text


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b"", "hex"),
        (b"hello", "text"),
        ("你好".encode(), "text"),
        (b'{"a": [1, "\xe4\xb8\xad"]}', "json"),
        (b"[]", "json"),
        (msgspec.msgpack.encode({"unknown": True}), "msgpack"),
        (b"\x00\xff" * 10, "hex"),
        (b"\xff\xfe\xfd", "hex"),
        (pickle.dumps({"a": 1}), "hex"),
        (b"[" * 100_000, "text"),
        (b"\x91" * 100_000, "hex"),
        (b'{"n": NaN}', "text"),
        (b'{"n": 1e400}', "text"),
        (b'{"n": "\\u0000"}', "json"),
        (b'{"n": "\\ud800"}', "text"),
    ],
)
def test_anything_else_is_shown_as_well_as_it_can_be_read(body: bytes, form: str) -> None:
    assert preview(body, mask).form == form


def test_valid_nesting_deeper_than_the_stack_is_shown_raw() -> None:
    depth = 900
    body = msgspec.msgpack.encode(b"")
    for _ in range(depth):
        body = b"\x91" + body
    assert preview(body, mask).text


@pytest.mark.slow("4 s")
@pytest.mark.parametrize("letter", ["a", "中", "\x1b", "\xff"])
def test_a_huge_body_is_cut(letter: str) -> None:
    shown = preview(letter.encode("latin-1" if letter == "\xff" else "utf-8") * 8_000_000, mask)
    assert shown.cut
    assert len(shown.text) <= 6 * SHOWN_CHARACTERS


def test_nothing_steers_a_terminal_or_turns_a_line_around() -> None:
    text = preview("plain text, and then \x1b[31mred \u202eright to left\r\n".encode(), mask).text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\u001b" in text
    assert "\\u202e" in text
    assert printable("line\n\ttab") == "line\n\ttab"
