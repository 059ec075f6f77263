"""Which documents a query finds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.joblogs.elastic_double.answers import Document, Refusal, Unsupported, only
from tests.joblogs.elastic_double.indexes import Doc
from tests.joblogs.elastic_double.mappings import Mapping, tokens

Test = Callable[[Doc], bool]
MOST_TERMS = 65_536
MOST_EFFORT = 100_000
_EXACT = {"keyword", "long", "integer", "boolean"}
_NUMBERS = {"long", "integer"}


def compiled(query: Document, mapping: Mapping) -> Test:
    """The query as a function."""
    ((kind, body),) = query.items()
    if kind == "match_all":
        only(body, set(), kind)
        return lambda _doc: True
    if kind == "bool":
        return _bool(body, mapping)
    if kind == "exists":
        only(body, {"field"}, kind)
        name = body["field"]
        mapping.kind(name)
        return lambda doc: doc.source.get(name) is not None
    if kind not in _LEAVES:
        raise Unsupported(f"query {kind}")
    if len(body) != 1:
        raise Refusal(400, "parsing_exception", f"[{kind}] query does not support several fields")
    ((name, value),) = body.items()
    return _LEAVES[kind](name, value, mapping)


def _bool(body: Document, mapping: Mapping) -> Test:
    only(body, {"filter", "must", "should", "must_not", "minimum_should_match"}, "bool")

    def clauses(kind: str) -> list[Test]:
        given = body.get(kind, [])
        return [compiled(one, mapping) for one in (given if isinstance(given, list) else [given])]

    needed = clauses("filter") + clauses("must")
    either, none = clauses("should"), clauses("must_not")
    least = body.get("minimum_should_match", 0 if needed or not either else 1)

    def test(doc: Doc) -> bool:
        return (
            all(one(doc) for one in needed)
            and not any(one(doc) for one in none)
            and sum(one(doc) for one in either) >= least
        )

    return test


def _values(doc: Doc, name: str) -> list[Any]:
    value = doc.source.get(name)
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _term(name: str, value: Any, mapping: Mapping) -> Test:
    if isinstance(value, dict):
        only(value, {"value"}, "term")
        value = value["value"]
    return _terms(name, [value], mapping)


def _terms(name: str, values: Any, mapping: Mapping) -> Test:
    kind = mapping.kind(name)
    if kind not in _EXACT:
        raise Unsupported(f"term on {name}, a {kind}")
    if len(values) > MOST_TERMS:
        raise Refusal(400, "illegal_argument_exception", "too many terms")
    for value in values:
        if kind in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int)):
            raise Refusal(400, "query_shard_exception", f"failed to create query: {value!r}")
        if kind == "keyword" and not isinstance(value, str):
            raise Unsupported(f"term on {name}: {value!r}")
    wanted = set(values)
    return lambda doc: any(one in wanted for one in _values(doc, name))


def _range(name: str, body: Document, mapping: Mapping) -> Test:
    only(body, {"gt", "gte", "lt", "lte"}, "range")
    if mapping.kind(name) not in _NUMBERS or not all(isinstance(one, int) for one in body.values()):
        raise Unsupported(f"range on {name}")
    compare: dict[str, Callable[[int, int], bool]] = {
        "gt": lambda a, b: a > b,
        "gte": lambda a, b: a >= b,
        "lt": lambda a, b: a < b,
        "lte": lambda a, b: a <= b,
    }

    def test(doc: Doc) -> bool:
        values = _values(doc, name)
        return bool(values) and all(compare[one](values[0], body[one]) for one in body)

    return test


def _text(name: str, mapping: Mapping, query: str) -> None:
    if mapping.kind(name) != "text":
        raise Unsupported(f"{query} on {name}")


def _prefix(name: str, body: Document, mapping: Mapping) -> Test:
    only(body, {"value"}, "prefix")
    _text(name, mapping, "prefix")
    value = body["value"]
    return lambda doc: any(one.startswith(value) for one in doc.tokens(name))


def _match_phrase(name: str, body: Document, mapping: Mapping) -> Test:
    only(body, {"query"}, "match_phrase")
    _text(name, mapping, "match_phrase")
    return _follow(name, tokens(body["query"]), lambda word, wanted: word == wanted)


def _match_phrase_prefix(name: str, body: Document, mapping: Mapping) -> Test:
    only(body, {"query", "max_expansions"}, "match_phrase_prefix")
    _text(name, mapping, "match_phrase_prefix")
    return _follow(name, tokens(body["query"]), str.startswith)


def _follow(name: str, wanted: list[str], last: Callable[[str, str], bool]) -> Test:
    def test(doc: Doc) -> bool:
        words, count = doc.tokens(name), len(wanted)
        return any(
            words[place : place + count - 1] == wanted[:-1]
            and last(words[place + count - 1], wanted[-1])
            for place in range(len(words) - count + 1)
        )

    return test if wanted else lambda _doc: False


def _wildcard(name: str, body: Document, mapping: Mapping) -> Test:
    only(body, {"value", "case_insensitive"}, "wildcard")
    if mapping.kind(name) != "wildcard":
        raise Unsupported(f"wildcard on {name}")
    parts: list[str] = []
    pattern = iter(body["value"])
    for character in pattern:
        if character == "\\":
            parts.append(re.escape(next(pattern, "\\")))
        else:
            parts.append({"*": ".*", "?": "."}.get(character) or re.escape(character))
    check_effort(body["value"])
    # Upper and lower case are alike in ASCII alone.
    flags = re.DOTALL
    if body.get("case_insensitive"):
        parts = [re.sub("[a-zA-Z]", _either, part) for part in parts]
    expression = re.compile("".join(parts), flags)
    return lambda doc: any(expression.fullmatch(one) for one in _values(doc, name))


def check_effort(pattern: str) -> None:
    """Refuse what makes too large an automaton, counted as Lucene does when it determinizes."""
    tokens = re.findall(r"\\.|.", pattern, re.DOTALL)
    characters = {token for token in tokens if token != "*"} | {""}

    def reached(places: set[int]) -> frozenset[int]:
        for place in sorted(places):
            while place < len(tokens) and tokens[place] == "*":
                places.add(place := place + 1)
        return frozenset(places)

    seen = {reached({0})}
    left, effort = list(seen), 0
    while left:
        places = left.pop()
        effort += len(places)
        if effort >= MOST_EFFORT:
            reason = f"Determinizing automaton with {len(tokens)} states would need more effort"
            raise Refusal(500, "too_complex_to_determinize_exception", reason)
        for character in characters:
            inside = {place for place in places if place < len(tokens)}
            stay = {place for place in inside if tokens[place] == "*"}
            step = {place + 1 for place in inside if tokens[place] in (character, "?")}
            state = reached(stay | step)
            if state not in seen:
                seen.add(state)
                left.append(state)


def _either(found: re.Match[str]) -> str:
    return f"[{found[0].lower()}{found[0].upper()}]"


_LEAVES: dict[str, Callable[[str, Any, Mapping], Test]] = {
    "term": _term,
    "terms": _terms,
    "range": _range,
    "prefix": _prefix,
    "match_phrase": _match_phrase,
    "match_phrase_prefix": _match_phrase_prefix,
    "wildcard": _wildcard,
}
