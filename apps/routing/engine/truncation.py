"""Truncation of JSON values for display; omitted parts are marked."""

from __future__ import annotations

from typing import Any, Final

# Approximate limits of a whole value and of each text in it, in characters of JSON.
MOST_CHARACTERS: Final = 20_000
MOST_TEXT: Final = 2_000
# Key of an object, or start of a list entry, that stands for the omitted part.
MARK: Final = "…"


def shortened(
    value: Any, most: int = MOST_CHARACTERS, most_text: int = MOST_TEXT
) -> tuple[Any, bool]:
    """Return a JSON value truncated to about ``most`` characters, and whether it was truncated.

    Omitted parts are counted in place: ``"… 17 more"`` ends a list, ``{"…": "17 more"}`` an
    object, ``"abc… (900 more characters)"`` a text. The argument is not modified.
    """
    cutter = _Cutter(most, most_text)
    shown = cutter.shown(value)
    return shown, cutter.has_cut


class _Cutter:
    def __init__(self, most: int, most_text: int) -> None:
        self._left = most
        self._most_text = most_text
        self.has_cut = False

    def shown(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list | tuple):
            return self._list(value)
        self._left -= 8
        return value

    def _text(self, text: str) -> str:
        most = max(0, min(self._most_text, self._left))
        self._left -= min(len(text), most) + 2
        if len(text) <= most:
            return text
        self.has_cut = True
        return f"{text[:most]}{MARK} ({len(text) - most} more characters)"

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for number, (key, part) in enumerate(value.items()):
            if self._left <= 0:
                self.has_cut = True
                shown[MARK] = f"{len(value) - number} more"
                break
            self._left -= len(key) + 4
            shown[key] = self.shown(part)
        return shown

    def _list(self, value: list[Any] | tuple[Any, ...]) -> list[Any]:
        shown: list[Any] = []
        for number, part in enumerate(value):
            if self._left <= 0:
                self.has_cut = True
                shown.append(f"{MARK} {len(value) - number} more")
                break
            self._left -= 2
            shown.append(self.shown(part))
        return shown
