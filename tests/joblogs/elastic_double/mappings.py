"""Templates, and documents held to their mapping."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.joblogs.elastic_double.answers import Document, Refusal, Unsupported, only

LONGEST_TERM_BYTES = 32_766
LONGEST_TOKEN = 255
_RANGES = {"long": 2**63, "integer": 2**31}
_SETTINGS = {"number_of_shards", "number_of_replicas", "refresh_interval", "index.lifecycle.name"}
_OPTIONS = {
    "keyword": set[str](),
    "wildcard": set[str](),
    "boolean": set[str](),
    "date": set[str](),
    "long": {"index"},
    "integer": {"index"},
    "text": {"analyzer", "norms"},
    "object": {"enabled"},
}


@dataclass
class Mapping:
    """What the documents of an index may hold."""

    properties: dict[str, Document] = field(default_factory=dict)
    excluded: frozenset[str] = frozenset()

    def kind(self, name: str, *, by_value: bool = False) -> str:
        """The type of a field that is searched, or of one whose values are sorted or summed."""
        if name not in self.properties:
            raise Unsupported(f"a field that is in no mapping: {name}")
        if self.properties[name].get("index") is False and not by_value:
            raise Refusal(400, "query_shard_exception", f"field [{name}] is not indexed")
        return str(self.properties[name]["type"])

    def check(self, source: Document) -> None:
        """Refuse a document that does not fit."""
        for name, value in source.items():
            if name not in self.properties:
                reason = f"mapping set to strict, dynamic introduction of [{name}] is not allowed"
                raise Refusal(400, "strict_dynamic_mapping_exception", reason)
            for one in value if isinstance(value, list) else [value]:
                _check_value(name, self.properties[name]["type"], one)

    def shown(self, source: Document) -> Document:
        """What is given back of it."""
        return {name: value for name, value in source.items() if name not in self.excluded}


def read_template(body: Document) -> tuple[list[str], int, Mapping]:
    """(patterns, priority, mapping) of an index template."""
    only(body, {"index_patterns", "priority", "template"}, "template")
    template = body["template"]
    only(template, {"settings", "mappings"}, "template")
    only(template["settings"], _SETTINGS, "settings")
    mappings = template["mappings"]
    only(mappings, {"dynamic", "properties", "_source"}, "mappings")
    if mappings.get("dynamic") != "strict":
        raise Unsupported("mappings: dynamic is not strict")
    for name, one in mappings["properties"].items():
        options = set(one) - {"type"}
        if one.get("type") not in _OPTIONS or not options <= _OPTIONS[one["type"]]:
            raise Unsupported(f"mapping of {name}: {one}")
        if one["type"] == "text" and one.get("analyzer") != "whitespace":
            raise Unsupported(f"analyzer of {name}")
        if one["type"] == "object" and one.get("enabled") is not False:
            raise Unsupported(f"objects that are searched: {name}")
    source = mappings.get("_source", {})
    only(source, {"excludes"}, "_source")
    excluded = frozenset(source.get("excludes", ()))
    return body["index_patterns"], body["priority"], Mapping(mappings["properties"], excluded)


def matches(name: str, patterns: list[str]) -> bool:
    """Whether the name of an index is meant."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def check_index_name(name: str) -> None:
    """As the server does."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,254}", name):
        raise Refusal(400, "invalid_index_name_exception", f"Invalid index name [{name}]")


def tokens(text: str) -> list[str]:
    """The ``whitespace`` analyzer, which cuts what is too long."""
    return list(_tokens(text))


def _tokens(text: str) -> Iterator[str]:
    for word in text.split():
        for begin in range(0, len(word), LONGEST_TOKEN):
            yield word[begin : begin + LONGEST_TOKEN]


def _check_value(name: str, kind: str, value: Any) -> None:
    if value is None or kind == "object":
        return
    problem = ""
    if kind in _RANGES:
        limit = _RANGES[kind]
        if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
            problem = f"failed to parse field [{name}] of type [{kind}]"
    elif kind == "boolean":
        problem = "" if isinstance(value, bool) else f"failed to parse field [{name}] of [boolean]"
    elif not isinstance(value, str):
        problem = f"failed to parse field [{name}] of type [{kind}]"
    elif kind == "date":
        try:
            datetime.fromisoformat(value)
        except ValueError:
            problem = f"failed to parse field [{name}] of type [date]"
    elif kind == "keyword" and len(value.encode()) > LONGEST_TERM_BYTES:
        problem = f'Document contains at least one immense term in field="{name}"'
    if problem:
        raise Refusal(400, "document_parsing_exception", problem)
