"""What somebody is told, in the language of the channel, before a channel gives it its form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """One thing to tell.

    ``id`` stays the same however often it is sent. ``lines``: one fact each, no line breaks in
    them. ``short``: all that matters in one line, for text messages. ``links``: (text, address).
    ``event``, ``at`` and ``data`` are for programs. ``thread``: what mail programs put together.
    """

    id: str
    title: str
    lines: tuple[str, ...]
    short: str
    at: datetime
    event: str
    links: tuple[tuple[str, str], ...] = ()
    thread: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Title, lines and links as plain text."""
        parts = [self.title, "", *self.lines]
        if self.links:
            parts += ["", *(f"{text}: {address}" for text, address in self.links)]
        return "\n".join(parts)


def one_line(text: object, most: int = 300) -> str:
    """As one line without control characters, shortened."""
    shown = "".join(sign if sign.isprintable() else " " for sign in str(text)[: 4 * most])
    shown = " ".join(shown.split())
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def cut_bytes(text: str, most: int) -> str:
    """At most ``most`` bytes of UTF-8, never half a character."""
    raw = text.encode()
    if len(raw) <= most:
        return text
    return raw[: most - 3].decode(errors="ignore") + "…"
