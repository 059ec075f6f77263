"""Compiled fields: sources of values on a page, and conversion into record fields."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from lxml import etree

from apps.requeststore.extraction.collector import Collector
from apps.requeststore.extraction.conversion import Cast
from apps.requeststore.extraction.limits import MAX_RESULT_BYTES, MAX_VALUES
from apps.requeststore.extraction.page import Document
from apps.requeststore.extraction.problems import BadValue
from apps.requeststore.extraction.queries import Query, RegexPattern
from apps.requeststore.extraction.steps import FieldStep, is_blank
from apps.requeststore.extraction.xpaths import Nodes

_string: Final = etree.XPath("string()", smart_strings=False)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an expression is evaluated: a page, or one record on it.

    ``node``: of HTML or XML; ``value``: of JSON; ``text``: of plain text, or of a regex record.
    """

    document: Document
    node: Any = None
    value: Any = None
    text: str | None = None
    # True in a record, False for the page.
    inside: bool = False


class ValueSource:
    """Finds raw values in a scope. Raises ``BadValue`` and ``PageError``."""

    def raw(self, scope: Scope) -> Iterable[Any]:
        """Return nodes, strings, or JSON values."""
        raise NotImplementedError

    def inner(self, raw: Any, scope: Scope) -> Scope:
        """Return the scope inside a raw value."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class NodeSource(ValueSource):
    """CSS or XPath expression."""

    nodes: Nodes

    def raw(self, scope: Scope) -> Iterable[Any]:
        place = scope.node if scope.node is not None else scope.document.root
        try:
            matches = self.nodes(place)
        except etree.XPathError as error:
            raise BadValue(f"the expression fails: {str(error)[:200]}") from None
        except (ValueError, TypeError, UnicodeError) as error:
            raise BadValue(f"the expression fails: {str(error)[:200]}") from None
        if isinstance(matches, list):
            return matches
        if isinstance(matches, float):
            # XPath numbers are floats, and NaN for anything else.
            if matches != matches:
                return []
            return [int(matches) if matches.is_integer() and abs(matches) < 1e15 else matches]
        return [matches]

    def inner(self, raw: Any, scope: Scope) -> Scope:
        if not etree.iselement(raw):
            raise BadValue("a record must be an element; the expression gives texts")
        return Scope(scope.document, node=raw, inside=True)


@dataclass(frozen=True, slots=True)
class QuerySource(ValueSource):
    """JMESPath expression. A list is one value unless ``opened``."""

    query: Query
    opened: bool

    def raw(self, scope: Scope) -> Iterable[Any]:
        value = scope.value if scope.inside else scope.document.data
        matches = self.query(value)
        if self.opened and isinstance(matches, list):
            return matches
        return [] if matches is None else [matches]

    def inner(self, raw: Any, scope: Scope) -> Scope:
        return Scope(scope.document, value=raw, inside=True)


@dataclass(frozen=True, slots=True)
class TextSource(ValueSource):
    """Regular expression on the text of the page or the record."""

    pattern: RegexPattern

    def raw(self, scope: Scope) -> Iterable[Any]:
        return self.pattern.matches(text_of(scope))

    def inner(self, raw: Any, scope: Scope) -> Scope:
        return Scope(scope.document, text=raw, inside=True)


@dataclass(frozen=True, slots=True)
class ConstSource(ValueSource):
    """Constant value."""

    value: Any

    def raw(self, scope: Scope) -> Iterable[Any]:
        return [self.value]


@dataclass(frozen=True, slots=True)
class PageSource(ValueSource):
    """Property of the page: url, status, encoding, header or meta."""

    kind: str
    name: str = ""

    def raw(self, scope: Scope) -> Iterable[Any]:
        page = scope.document.page
        if self.kind == "header":
            matches: Any = page.header(self.name)
        elif self.kind == "meta":
            matches = page.meta.get(self.name)
        elif self.kind == "encoding":
            matches = scope.document.encoding
        elif self.kind == "text":
            matches = text_of(scope)
        else:
            matches = getattr(page, self.kind)
        return [] if matches is None else [matches]


def text_of(scope: Scope) -> str:
    """Return the text that regular expressions see."""
    if scope.text is not None:
        return scope.text
    if scope.node is not None:
        return str(_string(scope.node))
    return scope.document.text


def _plain(raw: Iterable[Any], markup: str) -> Iterator[Any]:
    """Return nodes as text, or as markup: "html", "xml", or "" for text."""
    size = 0
    for value in raw:
        if etree.iselement(value):
            if markup:
                made = etree.tostring(value, method=markup, encoding="unicode", with_tail=False)
            else:
                made = str(_string(value))
            size += len(made)
            if size > MAX_RESULT_BYTES:
                raise BadValue(f"more than {MAX_RESULT_BYTES} characters")
            yield made
        elif isinstance(value, tuple):
            # Namespace nodes (``namespace::``) have no useful text.
            yield str(value[-1])
        else:
            yield value


@dataclass(frozen=True, slots=True)
class RecordField:
    """Field of a record. With ``fields`` it is a record itself; with ``many`` a list."""

    name: str
    source: ValueSource
    steps: Sequence[FieldStep] = ()
    cast: Cast | None = None
    kind: str = "text"
    markup: str = ""
    many: bool = False
    required: bool = False
    default: Any = None
    fields: Sequence[RecordField] = ()

    def read(self, scope: Scope, collector: Collector, path: str) -> Any:
        """Return the value; problems go to the collector.

        Raises ``PageError`` and ``ExtractionLimitReached``.
        """
        path = f"{path}.{self.name}" if path else self.name
        values: list[Any] = []
        try:
            if self.fields:
                self._read_records(scope, collector, path, values)
            else:
                self._read_values(scope, collector, path, values)
        except BadValue as error:
            collector.problem("bad_value", str(error), path, fatal=self.required)
        if values:
            return values if self.many else values[0]
        if self.required:
            collector.problem("missing", "required, and not on this page", path, fatal=True)
        # A copy: callers may change their records.
        return copy.deepcopy(self.default)

    def _read_values(
        self, scope: Scope, collector: Collector, path: str, values: list[Any]
    ) -> None:
        extracted: Iterable[Any] = _plain(self.source.raw(scope), self.markup)
        for step in self.steps:
            extracted = step.work(extracted)
        for value in extracted:
            if is_blank(value):
                continue
            if len(values) >= MAX_VALUES:
                raise BadValue(f"more than {MAX_VALUES} values")
            try:
                assert self.cast is not None  # noqa: S101 - only fields with fields have none
                made = self.cast(value, scope.document)
            except BadValue as error:
                collector.problem("bad_value", str(error), path, fatal=self.required)
                if not self.many:
                    return
                continue
            if isinstance(made, str) and self.kind != "html":
                made = made.strip()
            values.append(collector.keep(made))
            if not self.many:
                return

    def _read_records(
        self, scope: Scope, collector: Collector, path: str, values: list[Any]
    ) -> None:
        raw = self.source.raw(scope)
        for value in raw if self.many else islice(raw, 1):
            if len(values) >= MAX_VALUES:
                raise BadValue(f"more than {MAX_VALUES} records")
            values.append(read_all(self.fields, self.source.inner(value, scope), collector, path))


def read_all(
    fields: Sequence[RecordField], scope: Scope, collector: Collector, path: str = ""
) -> dict[str, Any]:
    """Return a record."""
    return {field.name: field.read(scope, collector, path) for field in fields}
