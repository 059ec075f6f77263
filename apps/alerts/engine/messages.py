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
    them. ``place``: where and since when, in a few words, which the title leaves out. ``links``:
    (text, address), what matters most first. ``event``, ``at`` and ``data`` are for programs.
    ``thread``: what mail programs put together.
    """

    id: str
    title: str
    lines: tuple[str, ...]
    at: datetime
    event: str
    place: str = ""
    links: tuple[tuple[str, str], ...] = ()
    thread: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Title, lines and links as plain text."""
        return "\n".join([*self._head, *self._foot])

    def within(self, most: int) -> str:
        """The same in at most ``most`` bytes of UTF-8: what is cut is never the links."""
        foot = "\n".join(["", *self._foot]) if self._foot else ""
        if len(foot.encode()) > most // 2:
            return cut_bytes(self.text, most)
        return cut_bytes("\n".join(self._head), most - len(foot.encode())) + foot

    def short(self, most: int) -> str:
        """One line of at most ``most`` characters, for text messages.

        What is wrong is cut, down to a third of it; then the link is left out, then the place.
        """
        link = self.links[0][1] if self.links else ""
        for rest in ((self.place, link), (self.place,), ()):
            tail = "".join(f" · {each}" for each in rest if each)
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
