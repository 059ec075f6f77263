"""Compiles the steps of a field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from apps.requeststore.extraction.limits import MAX_STEPS, MAX_TEXT
from apps.requeststore.extraction.notes import ValidationNotes
from apps.requeststore.extraction.queries import RegexPattern, compile_jmespath
from apps.requeststore.extraction.steps import (
    PLAIN,
    FieldStep,
    each_text,
    joining,
    matching,
    querying,
    replacing,
    splitting,
    substituting,
)

_Data = Mapping[str, Any]


def read_steps(data: Any, place: str, notes: ValidationNotes) -> list[FieldStep]:
    """Compile ``["strip", {"replace": ["a", "b"]}]``; problems go to ``notes``."""
    if not isinstance(data, list) or len(data) > MAX_STEPS:
        notes.add(place, "bad_steps", f"use a list of at most {MAX_STEPS} steps")
        return []
    steps = [_read(step, f"{place}[{index}]", notes) for index, step in enumerate(data)]
    return [step for step in steps if step is not None]


def _read(data: Any, place: str, notes: ValidationNotes) -> FieldStep | None:
    if isinstance(data, str) and data in PLAIN:
        return PLAIN[data]
    if not isinstance(data, dict) or len(data) != 1 or next(iter(data)) not in _WITH:
        text = f"use one of {', '.join((*PLAIN, *(f'{name}: ...' for name in _WITH)))}"
        notes.add(place, "unknown_step", text)
        return None
    return _WITH[next(iter(data))](data, place, notes)


def _regex(data: _Data, place: str, notes: ValidationNotes) -> FieldStep | None:
    pattern = notes.compiled(data, "regex", place, RegexPattern)
    return matching(pattern) if pattern is not None else None


def _jmespath(data: _Data, place: str, notes: ValidationNotes) -> FieldStep | None:
    query = notes.compiled(data, "jmespath", place, compile_jmespath)
    return querying(query) if query is not None else None


def _pair(data: _Data, key: str, place: str, notes: ValidationNotes) -> tuple[str, str] | None:
    given = data[key]
    if (
        not isinstance(given, list)
        or len(given) != 2
        or not all(isinstance(text, str) and len(text) <= MAX_TEXT for text in given)
        or not given[0]
    ):
        notes.add(f"{place}.{key}", "bad_text", "use a list of two texts: what, and by what")
        return None
    return given[0], given[1]


def _replace(data: _Data, place: str, notes: ValidationNotes) -> FieldStep | None:
    pair = _pair(data, "replace", place, notes)
    return replacing(*pair) if pair is not None else None


def _sub(data: _Data, place: str, notes: ValidationNotes) -> FieldStep | None:
    pair = _pair(data, "sub", place, notes)
    if pair is None:
        return None
    pattern = notes.compiled({"sub": pair[0]}, "sub", place, RegexPattern)
    return substituting(pattern, pair[1]) if pattern is not None else None


def _split(data: _Data, place: str, notes: ValidationNotes) -> FieldStep | None:
    separator = notes.text(data, "split", place, most=MAX_TEXT, needed=True)
    return splitting(separator) if separator else None


def _join(data: _Data, place: str, notes: ValidationNotes) -> FieldStep | None:
    return joining(notes.text(data, "join", place, most=MAX_TEXT))


def _prefix(data: _Data, place: str, notes: ValidationNotes) -> FieldStep | None:
    text = notes.text(data, "prefix", place, most=MAX_TEXT, needed=True)
    return each_text("prefix", lambda value: text + value)


def _suffix(data: _Data, place: str, notes: ValidationNotes) -> FieldStep | None:
    text = notes.text(data, "suffix", place, most=MAX_TEXT, needed=True)
    return each_text("suffix", lambda value: value + text)


_WITH: Final[Mapping[str, Callable[[_Data, str, ValidationNotes], FieldStep | None]]] = {
    "regex": _regex,
    "sub": _sub,
    "replace": _replace,
    "jmespath": _jmespath,
    "split": _split,
    "join": _join,
    "prefix": _prefix,
    "suffix": _suffix,
}

STEPS: Final = (*PLAIN, *_WITH)
