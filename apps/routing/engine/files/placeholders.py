"""Placeholders such as ``{redis_url}``, substituted by settings of the installation.

A placeholder is a word of ASCII letters, digits and ``_``, not beginning with a digit, in one pair
of braces; ``\\d{3}`` and ``{"a": 1}`` contain none. To write a literal ``{word}``, double the
braces: one pair is removed from a word in two or more pairs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

# Limit of a substituted text: a few placeholders, repeated often, could make it very large.
MOST_CHARACTERS: Final = 100_000
# Possessive, and anchored at the start of a run of braces, for linear time.
_WORD: Final = re.compile(r"(?<!\{)(\{++)([A-Za-z_][A-Za-z0-9_]*+)(\}++)")


class TextTooLong(ValueError):
    """Substituted text that is longer than ``MOST_CHARACTERS``."""


def fill(
    text: str, values: Mapping[str, str], *, keep_unknown: bool = False
) -> tuple[str, list[str]]:
    """Substitute placeholders; return the text and the names of unknown placeholders.

    Unknown placeholders are left in the text. With ``keep_unknown`` they are not listed.

    Raises:
        TooLong: the result has more than ``MOST_CHARACTERS`` characters.
    """
    unknown: list[str] = []
    room = MOST_CHARACTERS - len(text)

    def filled(match: re.Match[str]) -> str:
        nonlocal room
        before, name, after = match.groups()
        if min(len(before), len(after)) > 1:
            return f"{before[1:]}{name}{after[1:]}"
        if name not in values:
            if not keep_unknown:
                unknown.append(name)
            return match[0]
        room -= len(values[name])
        if room < 0:
            raise TextTooLong(f"more than {MOST_CHARACTERS} characters with its settings filled in")
        return f"{before[1:]}{values[name]}{after[1:]}"

    return _WORD.sub(filled, text), unknown


def escape(text: str) -> str:
    """Escape braces, so that ``fill`` returns the original text whatever the values are."""
    return _WORD.sub(lambda match: f"{{{match[0]}}}", text)


def names(text: str) -> list[str]:
    """Return the names of the placeholders of a text, in order of appearance."""
    return [name for _, name, _ in _placeholders(text)]


def only_name(text: str) -> str:
    """Return the name if the text is exactly one placeholder, otherwise ""."""
    matched = _WORD.fullmatch(text)
    return matched[2] if matched and len(matched[1]) == len(matched[3]) == 1 else ""


def holds_any(value: object) -> bool:
    """Return whether a string, or any string in a list or mapping, contains a placeholder."""
    if isinstance(value, str):
        return bool(names(value))
    if isinstance(value, Mapping):
        return any(holds_any(part) for part in value.values())
    return isinstance(value, list | tuple) and any(holds_any(part) for part in value)


def map_texts(value: object, change: Callable[[str], str]) -> object:
    """Apply ``change`` to every string in lists and mappings, except to keys; return a copy."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: map_texts(part, change) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [map_texts(part, change) for part in value]
    return value


def _placeholders(text: str) -> list[tuple[str, str, str]]:
    return [
        (before, name, after)
        for before, name, after in _WORD.findall(text)
        if min(len(before), len(after)) == 1
    ]
