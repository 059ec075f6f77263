"""Channel-independent messages in the channel's language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """Message of one notification.

    ``id`` is stable across retries. ``lines``: one fact each, without line breaks. ``place``: where
    and since when, in short. ``links``: (text, URL), most important first. ``event``, ``at`` and
    ``data`` are for programs. ``thread``: mail thread ID. ``subject``: URL of what the message is
    about, for services that open an alert and close it when a message ``is_over``.
    """

    id: str
    title: str
    lines: tuple[str, ...]
    at: datetime
    event: str
    place: str = ""
    links: tuple[tuple[str, str], ...] = ()
    thread: str = ""
    subject: str = ""
    severity: str = "info"
    is_over: bool = False
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return title, lines and links as plain text."""
        return "\n".join([*self._head, *self._foot])

    def within(self, most: int) -> str:
        """Return the text cut to ``most`` bytes of UTF-8; links are kept."""
        foot = "\n".join(["", *self._foot]) if self._foot else ""
        if len(foot.encode()) > most // 2:
            return cut_bytes(self.text, most)
        return cut_bytes("\n".join(self._head), most - len(foot.encode())) + foot

    def short(self, most: int) -> str:
        """Return one line of at most ``most`` characters, for SMS.

        The title is cut down to a third; then the link is dropped, then the place.
        """
        link = self.links[0][1] if self.links else ""
        for rest in ((self.place, link), (self.place,), ()):
            tail = "".join(f" · {part}" for part in rest if part)
            if len(tail) <= most * 2 // 3:
                break
        return one_line(self.title, most - len(tail)) + tail

    @property
    def _head(self) -> list[str]:
        return [self.title, "", *self.lines]

    @property
    def _foot(self) -> list[str]:
        return ["", *(f"{text}: {address}" for text, address in self.links)] if self.links else []


def one_line(text: object, most: int = 300) -> str:
    """Return text as one line without control characters, shortened to ``most``."""
    shown = "".join(sign if sign.isprintable() else " " for sign in str(text)[: 4 * most])
    shown = " ".join(shown.split())
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def cut_bytes(text: str, most: int) -> str:
    """Cut text to ``most`` bytes of UTF-8, without splitting a character."""
    raw = text.encode()
    if len(raw) <= most:
        return text
    return raw[: most - 3].decode(errors="ignore") + "…"
