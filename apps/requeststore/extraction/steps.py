"""Steps that transform matched values before their conversion to the field's type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from apps.requeststore.extraction.conversion import to_text
from apps.requeststore.extraction.limits import MAX_PAGE_BYTES, MAX_VALUES
from apps.requeststore.extraction.problems import BadValue
from apps.requeststore.extraction.queries import Query, RegexPattern

Values = Iterable[Any]


@dataclass(frozen=True, slots=True)
class FieldStep:
    """Transformation. ``work`` maps an iterable of values to another, lazily where possible."""

    name: str
    work: Callable[[Values], Iterator[Any]]


def each_text(name: str, change: Callable[[str], str]) -> FieldStep:
    """Return a step that maps each string."""

    def work(values: Values) -> Iterator[Any]:
        for value in values:
            yield _bounded(change(to_text(value)))

    return FieldStep(name, work)


def _bounded(text: str) -> str:
    if len(text) > MAX_PAGE_BYTES:
        raise BadValue("the text grows too long")
    return text


def replacing(old: str, new: str) -> FieldStep:
    def change(text: str) -> str:
        if len(new) > len(old):
            growth = text.count(old) * (len(new) - len(old))
            if len(text) + growth > MAX_PAGE_BYTES:
                raise BadValue("the text grows too long")
        return text.replace(old, new)

    return each_text("replace", change)


def substituting(pattern: RegexPattern, new: str) -> FieldStep:
    """Return a step that replaces every match of ``pattern`` by the literal ``new``."""

    def change(text: str) -> str:
        parts, at, size = [], 0, 0
        for begin, end in pattern.spans(text):
            parts += [text[at:begin], new]
            size += begin - at + len(new)
            at = end
            if size > MAX_PAGE_BYTES:
                raise BadValue("the text grows too long")
        return "".join([*parts, text[at:]])

    return each_text("sub", change)


def matching(pattern: RegexPattern) -> FieldStep:
    """Return a step that yields all matches in all strings."""

    def work(values: Values) -> Iterator[Any]:
        for value in values:
            yield from pattern.matches(to_text(value))

    return FieldStep("regex", work)


def splitting(separator: str) -> FieldStep:
    def work(values: Values) -> Iterator[Any]:
        for value in values:
            parts = to_text(value).split(separator, MAX_VALUES)
            if len(parts) > MAX_VALUES:
                raise BadValue(f"more than {MAX_VALUES} parts")
            yield from parts

    return FieldStep("split", work)


def joining(separator: str) -> FieldStep:
    def work(values: Values) -> Iterator[Any]:
        texts, size = [], 0
        for value in values:
            text = to_text(value).strip()
            if not text:
                continue
            size += len(text) + len(separator)
            if size > MAX_PAGE_BYTES:
                raise BadValue("the text grows too long")
            texts.append(text)
        if texts:
            yield separator.join(texts)

    return FieldStep("join", work)


def querying(query: Query) -> FieldStep:
    """Return a step that applies JMESPath to each value, after parsing strings as JSON; yields the
    items of a list.
    """

    from apps.requeststore.extraction.conversion import to_json

    def work(values: Values) -> Iterator[Any]:
        for value in values:
            result = query(to_json(value, None))  # type: ignore[arg-type]  # never None here
            if isinstance(result, list):
                yield from result
            elif result is not None:
                yield result

    return FieldStep("jmespath", work)


def _unique(values: Values) -> Iterator[Any]:
    seen: set[Any] = set()
    for value in values:
        key = to_text(value)
        if key not in seen:
            seen.add(key)
            yield value


def _first(values: Values) -> Iterator[Any]:
    yield from islice((value for value in values if not is_blank(value)), 1)


def _last(values: Values) -> Iterator[Any]:
    last = None
    for value in values:
        last = value if not is_blank(value) else last
    if last is not None:
        yield last


def is_blank(value: Any) -> bool:
    """Return whether a value is null or white space."""
    return value is None or (isinstance(value, str) and not value.strip())


PLAIN: Final = {
    step.name: step
    for step in (
        each_text("strip", str.strip),
        each_text("collapse", lambda text: " ".join(text.split())),
        each_text("lower", str.lower),
        each_text("upper", str.upper),
        FieldStep("unique", _unique),
        FieldStep("first", _first),
        FieldStep("last", _last),
    )
}
