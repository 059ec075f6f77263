"""Answering the page that asks before something is destroyed, by the form that it shows."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.test import Client

_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')


def is_asked(answer: Any) -> bool:
    """Whether this is the page that asks."""
    return b'name="confirmed"' in answer.content


def fields_of(answer: Any) -> dict[str, list[str]]:
    """What its form sends when the person goes on, with the number typed where it asks for it."""
    page = answer.content.decode()
    fields: dict[str, list[str]] = {}
    for name, value in _HIDDEN.findall(page[page.index("content-main") :]):
        fields.setdefault(unescape(name), []).append(unescape(value))
    if 'id="id_typed"' in page:
        fields["typed"] = [str(answer.context_data["count"])]
    return fields


def confirm(client: Client, address: str, data: Any = None, **options: Any) -> Any:
    """Press the button, read the page that asks, and go on. ``options`` are for the last post."""
    asked = client.post(address, data)
    assert asked.status_code == 200, (asked.status_code, asked.content[:500])
    assert is_asked(asked), "nothing was asked"
    return client.post(address, fields_of(asked) | options.pop("typed", {}), **options)


def press(client: Client, address: str, data: Any = None, **options: Any) -> Any:
    """As ``confirm``, for buttons of which only some ask."""
    answer = client.post(address, data, **options)
    if answer.status_code == 200 and is_asked(answer):
        return client.post(address, fields_of(answer), **options)
    return answer
