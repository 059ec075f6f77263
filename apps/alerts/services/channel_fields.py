"""Validation of the fields of a channel, and what of them may be shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.channels.sms import PLACE
from apps.alerts.errors import BadChannel
from apps.alerts.services.channel_kinds import FIELDS, Text
from apps.alerts.services.channel_values import InvalidValue
from apps.alerts.states import ChannelKind


def read_fields(
    kind: str, typed: Mapping[str, Any], *, stored: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return settings and secrets from input. Raises ``BadChannel`` with problems by field.

    ``typed``: input by field name; a missing setting is reset. ``stored``: current secrets; a
    missing secret is kept, "" removes it.
    """
    known = {field.name: field for field in FIELDS[kind]}
    errors: dict[str, list[Text]] = {
        name: [_("This kind of channel has no such field.")] for name in typed if name not in known
    }
    plain: dict[str, Any] = {}
    secrets: dict[str, str] = {}
    for name, field in known.items():
        before = stored.get(name, "") if field.is_secret else field.default
        try:
            value = field.read(typed[name]) if name in typed and typed[name] != "" else None
        except InvalidValue as wrong:
            errors[name] = [wrong.args[0]]
            continue
        if value is None:
            value = "" if field.is_secret and name in typed else before
        if field.is_required and not value:
            errors[name] = [_("This field is required.")]
        elif field.is_secret:
            secrets |= {name: value} if value else {}
        else:
            plain[name] = value
    if kind == ChannelKind.SMS and not errors:
        errors |= _gateway_problems(plain)
    if errors:
        raise BadChannel(fields=errors)
    return plain, secrets


def _gateway_problems(plain: Mapping[str, Any]) -> dict[str, list[Text]]:
    body = plain["body"]
    if "{text}" not in plain["url"] + body:
        return {"body": [_("The body must contain {text}, otherwise the message is empty.")]}
    if plain["method"] == "GET" and body:
        return {"body": [_("GET requests have no body.")]}
    try:
        if body and plain["content"] == "json":
            json.loads(body)
        elif body:
            parse_qsl(body, keep_blank_values=True, strict_parsing=True)
    except (ValueError, RecursionError):
        return {"body": [_("The body does not have the selected format.")]}
    return {}


def shown_host(secrets: Mapping[str, str], plain: Mapping[str, Any]) -> str:
    """Return the host name of the channel's URL; the rest of the URL may be secret."""
    address = secrets.get("url") or str(plain.get("url", ""))
    try:
        return urlsplit(PLACE.sub("x", address)).hostname or ""
    except ValueError:
        return ""


def stored_secrets(kind: str, secrets: Mapping[str, str]) -> Sequence[str]:
    """Return the names of the stored secrets."""
    return [field.name for field in FIELDS[kind] if field.is_secret and secrets.get(field.name)]
