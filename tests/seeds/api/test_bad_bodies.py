"""What programs send by mistake or on purpose: refused with the place, and nothing is done."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.exceptions import ParseError

from apps.seeds.api.bodies import MAX_DEPTH, read_json
from apps.seeds.engine.limits import MAX_BODY_BYTES
from apps.seeds.models import Frontier
from tests.seeds.api.conftest import Caller

BAD: dict[str, tuple[bytes, str]] = {
    "empty word": (b"[nothing]", "line 1, character 2"),
    "cut": (b'{"data": "x"', "line 1, character 13"),
    "NaN": (b'{"data": "x", "ext": {"a": NaN}}', "NaN"),
    "infinite": (b'[{"data": "x",\n "ext": {"a": 1e400}}]', "line 2, character 15"),
    "beyond 64 bits": (b'{"data": "x", "max_retry": 18446744073709551616}', "character 28"),
    "many digits": (b"9" * 5000, "line 1, character 1"),
    "twice": (b'[{"data": "x"}, {"data": "x", "data": "y"}]', "line 1, character 17"),
    "twice inside": (b'{"data": "x",\n"ext": {"a": {"b": 1, "b": 1}}}', "line 2, character 14"),
    "half a character": (b'["a", "\\ud800"]', "line 1, character 8"),
    "other half": (b'["\\udc00"]', "line 1, character 3"),
    "not UTF-8": (b'["\xff"]', "byte 3"),
    "deep lists": (b"[" * 100_000, f"line 1, character 65: nested deeper than {MAX_DEPTH} levels"),
    "deep objects": (b'{"a":' * 100_000, "line 1, character 321"),
    "deep behind a text": (b'["[[[[", ' + b"[" * 64, "line 1, character 73"),
    "unending text": (b'"' + b'\\"' * 500_000, "line 1, character 1"),
    "control character": (b'["a\x01"]', "line 1, character 4"),
    "two values": (b'"a" "b"', "line 1, character 5"),
}


@pytest.mark.parametrize("name", BAD)
def test_the_place_of_a_mistake_is_told(name: str) -> None:
    raw, place = BAD[name]
    with pytest.raises(ParseError) as refused:
        read_json(raw)
    assert place in str(refused.value.detail)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a": "\\ud83d\\ude00", "b": [1.5, -0, null]}', {"a": "😀", "b": [1.5, 0, None]}),
        (b'"\\\\ud800"', "\\ud800"),
        (b'["[[", {"{": "]"}]', ["[[", {"{": "]"}]),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, None),
        (b"18446744073709551615", 2**64 - 1),
    ],
    ids=["pairs", "escaped backslash", "brackets in texts", "deep enough", "64 bits"],
)
def test_what_is_right_is_read(raw: bytes, value: Any) -> None:
    found = read_json(raw)
    assert value is None or found == value


WRONG: dict[str, tuple[str, Any, set[str]]] = {
    "number": ("add", 7, set()),
    "null": ("add", [None], {"seeds.0"}),
    "no data": ("add", {"url": "x"}, set()),
    "data is a number": ("add", ["a", {"data": 1}], {"seeds.1.data"}),
    "unknown field": ("add", [{"data": "x", "prio": 1}], {"seeds.0"}),
    "no time": ("add", {"data": "x", "active_at": "yesterday"}, {"active_at"}),
    "a time without a place": ("add", [{"data": "x", "active_at": 10**17}], {"seeds.0.active_at"}),
    "a time of another kind": ("add", [{"data": "x", "active_at": True}], {"seeds.0.active_at"}),
    "ext is a list": ("add", [{"data": "x", "ext": []}], {"seeds.0.ext"}),
    "a name of the service": ("add", [{"data": "x", "ext": {"_grab": "dead 1"}}], {"seeds.0.ext"}),
    "too many tries": ("lease", {"limit": 0}, {"limit"}),
    "endless": ("lease", {"wait_seconds": 31}, {"wait_seconds"}),
    "misspelt": ("lease", {"limits": 5}, {"limits"}),
    "a list": ("lease", [], set()),
    "owner is a number": ("finish", {"owner": 5, "finishes": []}, {"owner"}),
    "no lease": (
        "finish",
        {"finishes": [{"segment": 0, "key": "x", "outcome": "success"}]},
        {"finishes.0.generation"},
    ),
    "no outcome": (
        "finish",
        {"finishes": [{"segment": 0, "key": "x", "outcome": "won", "generation": 1}]},
        {"finishes.0.outcome"},
    ),
    "a foreign grab": (
        "finish",
        {
            "finishes": [
                {
                    "segment": 0,
                    "key": "x",
                    "outcome": "success",
                    "generation": 1,
                    "grab": "celery.tasks 00000000000000000000000000000000",
                }
            ]
        },
        {"finishes.0.grab"},
    ),
    "a number below zero": ("give-back", {"generation": -1}, {"generation"}),
    "half an hour": ("grab", {"data": "x", "timeout_seconds": 1800}, {"timeout_seconds"}),
    "no key": ("reopen", {"segment": 0}, {"key"}),
    "no segment": ("drop-segment", {}, {"segment"}),
    "another name": ("wipe", {"confirm": "sure"}, {"confirm"}),
}


@pytest.mark.django_db
@pytest.mark.parametrize("name", WRONG)
def test_what_is_of_a_wrong_type_is_named(caller: Caller, name: str) -> None:
    path, body, fields = WRONG[name]
    answer = caller.ask(path, body, 400)
    assert answer["code"] == "invalid"
    assert set(answer["fields"]) == fields


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["add", "lease", "finish", "look-up", "grab", "forget", "wipe"])
def test_every_call_tells_the_place(caller: Caller, path: str) -> None:
    for raw in (b'{"a": 1, "a": 2}', b"[" * 100_000, b'{"a": NaN}', b'{"a": "\xff"}'):
        answer = caller.raw(path, raw)
        assert (answer.status_code, answer.json()["code"]) == (400, "parse_error")


@pytest.mark.django_db
def test_a_body_may_be_as_large_as_a_call(caller: Caller) -> None:
    """Django itself would refuse what is larger than DATA_UPLOAD_MAX_MEMORY_SIZE."""
    raw = b'{"unknown": "' + b"x" * (MAX_BODY_BYTES - 100) + b'"}'
    answer = caller.raw("add", raw)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")


@pytest.mark.django_db
def test_a_body_is_no_larger_than_a_call(caller: Caller) -> None:
    answer = caller.raw("add", b'["' + b"x" * MAX_BODY_BYTES + b'"]')
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert caller.raw("add", b"data=x", "application/x-www-form-urlencoded").status_code == 415


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("key", "code"),
    [("k" * 2**20, "key_too_large"), ("a\x00b", "invalid"), ("\x7f", "binary_key")],
    ids=["a megabyte", "null", "delete"],
)
def test_keys_that_no_seed_has(caller: Caller, frontier: Frontier, key: str, code: str) -> None:
    for path in ("reopen", "forget"):
        assert caller.ask(path, {"segment": 0, "key": key}, 400)["code"] == code
