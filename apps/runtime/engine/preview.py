"""Previews of messages: truncated, and escaped so that they cannot forge a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from yardkit.nesting import check_json, check_msgpack
from yardkit.protocol import ProtocolError, decode, decode_request

SHOWN_CHARACTERS: Final = 64 * 1024
# Length of a body's preview, enough to recognise it.
SHOWN_BYTES: Final = 200
_HEX_WIDTH: Final = 16

Mask = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class BodyPreview:
    """``form`` is "message", "msgpack", "json", "text" or "hex"; ``kind`` is the name of the
    message.
    """

    form: str
    text: str
    kind: str = ""
    cut: bool = False


def preview(body: bytes, mask: Mask) -> BodyPreview:
    """Decode ``body`` as far as possible; ``mask`` hides values under secret-sounding names."""
    return _message(body, mask) or _container(body, mask) or _raw(body)


def printable(text: str) -> str:
    """Escape control and bidirectional characters in ``text``."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else f"\\u{ord(character):04x}"
        for character in text
    )


def _message(body: bytes, mask: Mask) -> BodyPreview | None:
    try:
        message = decode(body)
    except ProtocolError:
        return None
    return _pretty("message", message, mask, str(type(message).__struct_config__.tag))


def _container(body: bytes, mask: Mask) -> BodyPreview | None:
    for form, check, reader in (
        ("json", check_json, msgspec.json.decode),
        ("msgpack", check_msgpack, msgspec.msgpack.decode),
    ):
        try:
            check(body)
            value = reader(body)
        except (msgspec.MsgspecError, ValueError):
            continue
        # A short text may happen to be a valid MessagePack number: accept containers only.
        if isinstance(value, dict | list):
            return _pretty(form, value, mask)
    return None


def _raw(body: bytes) -> BodyPreview:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = ""
    if text and sum(not c.isprintable() and not c.isspace() for c in text) * 10 <= len(text):
        return _cut("text", text)
    head = body[: SHOWN_CHARACTERS // 5]
    return BodyPreview("hex", _hex_dump(head), cut=len(body) > len(head))


def _pretty(form: str, value: object, mask: Mask, kind: str = "") -> BodyPreview:
    hidden = mask({"message": _plain(value)})["message"]
    shown = _cut(form, json.dumps(hidden, ensure_ascii=False, indent=2, default=str))
    return replace(shown, kind=kind)


def _cut(form: str, text: str) -> BodyPreview:
    return BodyPreview(form, printable(text[:SHOWN_CHARACTERS]), cut=len(text) > SHOWN_CHARACTERS)


def _plain(value: object) -> Any:
    """Convert decoded messages to plain data: structs to mappings, nested requests decoded, bytes
    to short texts.
    """
    if isinstance(value, msgspec.Raw):
        return _request(value)
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, bytes):
        return _short(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return _headers(value) or [_plain(item) for item in value]
    return value


def _request(raw: msgspec.Raw) -> Any:
    try:
        return _plain(decode_request(raw))
    except ProtocolError:
        return _short(bytes(raw))


def _headers(value: list[Any] | tuple[Any, ...]) -> dict[str, Any] | None:
    """Convert pairs of HTTP headers to a mapping, so that secret ones are masked by name."""
    pairs = [item for item in value if isinstance(item, list | tuple) and len(item) == 2]
    texts = all(isinstance(part, str) for pair in pairs for part in pair)
    if not pairs or len(pairs) < len(value) or not texts:
        return None
    named: dict[str, Any] = {}
    for name, text in pairs:
        named[name] = f"{named[name]}, {text}" if name in named else text
    return named


def _short(value: bytes) -> str:
    text = value[:SHOWN_BYTES].decode("utf-8", "replace")
    return text if len(value) <= SHOWN_BYTES else f"{text}… ({len(value)} bytes)"


def _hex_dump(body: bytes) -> str:
    lines = []
    for start in range(0, len(body), _HEX_WIDTH):
        row = body[start : start + _HEX_WIDTH]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{_HEX_WIDTH * 3}} {letters}")
    return "\n".join(lines)
