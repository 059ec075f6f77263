"""``{redis_url}`` and the like, substituted from outside (seed S2.14).

A placeholder is one word of ASCII letters, digits and ``_`` between one pair of braces, so that
``\\d{3}`` and ``{"a": 1}`` are what they are. ``{{word}}`` is the text ``{word}``: of two or more
pairs around a word one is taken away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

# What a filled text has at most: few settings, named often, would else make a large one.
MOST_CHARACTERS: Final = 100_000
# Possessive, and only where a run of braces begins: the time grows with the text alone.
_WORD: Final = re.compile(r"(?<!\{)(\{++)([A-Za-z_][A-Za-z0-9_]*+)(\}++)")


class TooLong(ValueError):
    """The filled text has more than ``MOST_CHARACTERS``."""


def fill(
    text: str, values: Mapping[str, str], *, keep_unknown: bool = False
) -> tuple[str, list[str]]:
    """The text with the values in it, and the names that have none.

    ``keep_unknown`` leaves ``{name}`` as it is where there is no such value.

    Raises:
        TooLong
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
            raise TooLong(f"more than {MOST_CHARACTERS} characters with its settings filled in")
        return f"{before[1:]}{values[name]}{after[1:]}"

    return _WORD.sub(filled, text), unknown


def escape(text: str) -> str:
    """The text that ``fill`` makes this one of, whatever the values are."""
    return _WORD.sub(lambda match: f"{{{match[0]}}}", text)


def names(text: str) -> list[str]:
    """The placeholders of a text, in their order."""
    return [name for _, name, _ in _placeholders(text)]


def only_name(text: str) -> str:
    """The name where the text is one placeholder and nothing else, "" otherwise."""
    found = _WORD.fullmatch(text)
    return found[2] if found and len(found[1]) == len(found[3]) == 1 else ""


def holds_any(value: object) -> bool:
    """Whether a placeholder stands in a text, or in any text of a list or mapping."""
    if isinstance(value, str):
        return bool(names(value))
    if isinstance(value, Mapping):
        return any(holds_any(part) for part in value.values())
    return isinstance(value, list | tuple) and any(holds_any(part) for part in value)


def map_texts(value: object, change: Callable[[str], str]) -> object:
    """The same lists and mappings with every text changed; names are no texts here."""
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
