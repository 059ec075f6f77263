"""Parsing of submitted requests; each problem has its place: ``headers.Cookie``.

``entity, flaws = read_request({"url": "https://example.com/", "rule": 3}, biz)``

A plain string is the URL. ``apps.requeststore.texts`` has the texts of the flaws.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final

from apps.requeststore.engine.biz import Biz
from apps.requeststore.engine.entity import Entity, encode_entity
from apps.requeststore.engine.errors import InvalidRequest, TooLarge
from apps.requeststore.engine.limits import MAX_DATA_BYTES
from apps.requeststore.engine.request_checks import refusal
from apps.requeststore.engine.validation import SettingsProblem

FIELDS: Final = (*("url", "rule", "method", "headers", "params"), *("body", "body_base64", "meta"))
MAX_PAIRS: Final = 100


def read_request(value: object, biz: Biz) -> tuple[Entity, list[SettingsProblem]]:
    """Return the request and its problems; it may only be stored without problems."""
    if isinstance(value, str):
        value = {"url": value}
    if not isinstance(value, dict):
        return Entity(url=""), [SettingsProblem("", "not_request")]
    flaws = [
        SettingsProblem(str(name), "unknown_request_field") for name in value if name not in FIELDS
    ]
    flaws += [*_text(value), *_pairs(value, "headers"), *_pairs(value, "params")]
    if not isinstance(value.get("meta", {}), dict):
        flaws.append(SettingsProblem("meta", "not_mapping"))
    body, body_flaws = _body(value)
    flaws += body_flaws
    if flaws:
        return Entity(url=""), flaws
    entity = Entity(
        url=value["url"],
        rule=str(value.get("rule", "")),
        method=value.get("method", "GET"),
        headers=value.get("headers", {}),
        params=value.get("params", {}),
        body=body,
        meta=value.get("meta", {}),
    )
    return entity, list(_meaning(entity, biz))


def _text(value: dict[str, Any]) -> Iterator[SettingsProblem]:
    if "url" not in value:
        yield SettingsProblem("url", "required")
    for name in ("url", "method"):
        if not isinstance(value.get(name, ""), str):
            yield SettingsProblem(name, "not_text")
    rule = value.get("rule", "")
    if isinstance(rule, bool) or not isinstance(rule, str | int):
        yield SettingsProblem("rule", "not_text")


def _pairs(value: dict[str, Any], name: str) -> Iterator[SettingsProblem]:
    pairs = value.get(name, {})
    if not isinstance(pairs, dict):
        yield SettingsProblem(name, "not_mapping")
        return
    if len(pairs) > MAX_PAIRS:
        yield SettingsProblem(name, "too_many", {"most": MAX_PAIRS})
    for key, text in pairs.items():
        if not isinstance(text, str):
            yield SettingsProblem(f"{name}.{key}", "not_text")


def _body(value: dict[str, Any]) -> tuple[bytes, list[SettingsProblem]]:
    text, packed = value.get("body", ""), value.get("body_base64", "")
    if not isinstance(text, str):
        return b"", [SettingsProblem("body", "not_text")]
    if not isinstance(packed, str):
        return b"", [SettingsProblem("body_base64", "not_text")]
    if text and packed:
        return b"", [SettingsProblem("body_base64", "body_twice")]
    try:
        return (base64.b64decode(packed, validate=True) if packed else text.encode()), []
    except (binascii.Error, ValueError):
        return b"", [SettingsProblem("body_base64" if packed else "body", "bad_body")]


def _meaning(entity: Entity, biz: Biz) -> Iterator[SettingsProblem]:
    field, why = refusal(entity)
    if why:
        yield SettingsProblem(field, "not_sendable", {"text": why})
    if entity.rule and entity.rule not in biz.rules:
        yield SettingsProblem(
            "rule", "no_such_rule", {"names": ", ".join(sorted(biz.rules)) or "–"}
        )
    try:
        encode_entity(entity)
    except TooLarge:
        yield SettingsProblem("", "too_large", {"most": MAX_DATA_BYTES})
    except InvalidRequest as error:
        yield SettingsProblem("", "not_serialisable", {"why": str(error)})
