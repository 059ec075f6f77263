"""Processes of two versions understand each other, message by message."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from tests.yardkit.golden_messages import FOLDER, KINDS, file_of, sample
from yardkit import protocol
from yardkit.protocol import codec

VERSIONS = [version for version in (protocol.VERSION - 1, protocol.VERSION) if version > 0]


def holds(new: Any, old: Any) -> bool:
    """Whether all that ``old`` says is in ``new``, which may say more."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(
            name in new and holds(new[name], value) for name, value in old.items()
        )
    if isinstance(old, list):
        # Structs that are arrays grow at their end.
        return (
            isinstance(new, list) and len(new) >= len(old) and all(map(holds, new[: len(old)], old))
        )
    return bool(new == old)


def changed(body: bytes, version: int) -> bytes:
    return msgspec.msgpack.encode(msgspec.msgpack.decode(body) | {"v": version})


def test_every_message_has_a_tag_of_its_own() -> None:
    assert len(KINDS) > 40
    assert len(set(KINDS)) == len({kind.__name__ for kind in KINDS.values()})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("tag", KINDS)
def test_what_either_version_sends_is_read_and_nothing_of_it_lost(tag: str, version: int) -> None:
    file = file_of(tag, version)
    assert file.exists(), "run: python -m tests.yardkit.golden_messages"
    body = file.read_bytes()
    message = protocol.decode(body)
    assert type(message) is KINDS[tag]
    assert message.v == version
    assert holds(msgspec.msgpack.decode(protocol.encode(message)), msgspec.msgpack.decode(body))


@pytest.mark.parametrize("tag", KINDS)
def test_a_producer_writes_the_present_version(tag: str) -> None:
    body = protocol.encode(sample(KINDS[tag]))
    assert protocol.version_of(body) == protocol.VERSION
    # The golden message is what is sent today: who changes that makes another version.
    golden = msgspec.msgpack.decode(file_of(tag, protocol.VERSION).read_bytes())
    assert holds(msgspec.msgpack.decode(body), golden)


@pytest.mark.parametrize("version", [protocol.VERSION + 1, protocol.VERSION - 2, 99])
@pytest.mark.parametrize("tag", KINDS)
def test_any_other_version_is_refused_with_its_number(tag: str, version: int) -> None:
    body = changed(file_of(tag, protocol.VERSION).read_bytes(), version)
    with pytest.raises(protocol.ProtocolError, match=rf"^message version {version}; this process"):
        protocol.decode(body)
    assert protocol.version_of(body) == version


@pytest.mark.parametrize("tag", KINDS)
def test_a_reader_of_the_next_version_reads_what_is_sent_today(
    monkeypatch: pytest.MonkeyPatch, tag: str
) -> None:
    later = protocol.VERSION + 1
    monkeypatch.setattr(codec, "VERSION", later)
    monkeypatch.setattr(codec, "ACCEPTED_VERSIONS", frozenset({later, later - 1}))
    today = file_of(tag, protocol.VERSION).read_bytes()
    assert protocol.decode(today).v == protocol.VERSION
    # A field that the next version adds stands behind the others; a reader of today passes it over.
    more = msgspec.msgpack.encode(msgspec.msgpack.decode(changed(today, later)) | {"new": 1})
    assert protocol.decode(more).v == later
    with pytest.raises(protocol.ProtocolError, match=rf"this process reads {later}"):
        protocol.decode(changed(today, later - 2))


def test_no_golden_message_is_left_that_nobody_reads() -> None:
    for file in FOLDER.iterdir():
        found = re.fullmatch(r"(\w+)\.v(\d+)\.msgpack", file.name)
        assert found, file
        assert found[1] in KINDS, f"{file.name}: a message goes one version after its last reader"


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"junk", msgspec.msgpack.encode({"v": 1}), msgspec.msgpack.encode([1])]
)
def test_what_is_no_message_has_no_version(body: bytes) -> None:
    assert protocol.version_of(body) is None
