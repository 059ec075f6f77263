"""Matches of each expression of a rule on a page, for authors of rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from lxml import etree

from apps.requeststore.extraction.fields import RecordField, Scope, ValueSource
from apps.requeststore.extraction.limits import MAX_VALUES
from apps.requeststore.extraction.page import Document, ResponsePage
from apps.requeststore.extraction.problems import BadValue, PageError
from apps.requeststore.extraction.rules import Extracted, ExtractionRule, RuleMap

_RECORDS: Final = 20
_SAMPLES: Final = 3
_CHARACTERS: Final = 300


class Matched(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Matches of one expression. ``place``: such as ``fields.price``.

    ``count``: matches, in the first 20 records for expressions of records. ``samples``: the first
    matches, before any step.
    """

    place: str
    count: int = 0
    samples: list[str] = []
    problem: str = ""


class RuleMatches(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Matches of all expressions. ``extracted``: what a fetcher would get from the page."""

    extracted: Extracted
    matched: list[Matched] = []
    encoding: str = ""


def explain(rules: RuleMap, name: str, page: ResponsePage) -> RuleMatches:
    """Read a page and return the matches of each expression. Raises nothing."""
    extracted = rules.extract(name, page)
    rule = rules.find(name)
    if rule is None:
        return RuleMatches(extracted=extracted)
    try:
        document = rule.document(page, any_status=True)
        matches = _look(rule, document)
        encoding = document.encoding
    except (PageError, RecursionError, MemoryError):
        # The error is in ``extracted`` already.
        return RuleMatches(extracted=extracted)
    return RuleMatches(extracted=extracted, matched=matches, encoding=encoding)


def _look(rule: ExtractionRule, document: Document) -> list[Matched]:
    page = Scope(document)
    scopes = [page]
    matches = []
    if rule.each is not None:
        matches.append(_matched("each", rule.each, scopes))
        scopes = _inside(rule.each, scopes)
    matches += _fields("fields", rule.fields, scopes)
    for number, link in enumerate(rule.follow):
        matches.append(_matched(f"follow[{number}]", link.links.source, [page]))
    return matches


def _fields(place: str, fields: Sequence[RecordField], scopes: Sequence[Scope]) -> list[Matched]:
    matches = []
    for field in fields:
        field_place = f"{place}.{field.name}"
        matches.append(_matched(field_place, field.source, scopes))
        if field.fields:
            matches += _fields(f"{field_place}.fields", field.fields, _inside(field.source, scopes))
    return matches


def _inside(source: ValueSource, scopes: Iterable[Scope]) -> list[Scope]:
    scopes_found: list[Scope] = []
    for scope in scopes:
        try:
            raw = source.raw(scope)
            scopes_found += [
                source.inner(element, scope)
                for element in islice(raw, _RECORDS - len(scopes_found))
            ]
        except BadValue:
            continue
    return scopes_found


def _matched(place: str, source: ValueSource, scopes: Iterable[Scope]) -> Matched:
    count, problem = 0, ""
    samples: list[str] = []
    for scope in scopes:
        try:
            for raw in islice(source.raw(scope), MAX_VALUES):
                count += 1
                if len(samples) < _SAMPLES:
                    samples.append(_shown(raw))
        except BadValue as error:
            problem = problem or str(error)
    return Matched(place=place, count=count, samples=samples, problem=problem)


def _shown(raw: Any) -> str:
    if etree.iselement(raw):
        text = etree.tostring(raw, method="html", encoding="unicode", with_tail=False)
    elif isinstance(raw, str):
        text = raw
    else:
        try:
            text = msgspec.json.encode(raw).decode()
        except (TypeError, ValueError, OverflowError, RecursionError):
            text = str(type(raw).__name__)
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…"
