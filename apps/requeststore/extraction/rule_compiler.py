"""Compiles a rule map and collects all of its problems."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from apps.requeststore.extraction import limits
from apps.requeststore.extraction.conversion import CASTS, Cast, datetime_with
from apps.requeststore.extraction.fields import (
    ConstSource,
    NodeSource,
    PageSource,
    QuerySource,
    RecordField,
    TextSource,
    ValueSource,
)
from apps.requeststore.extraction.notes import ValidationNotes
from apps.requeststore.extraction.problems import RuleProblem
from apps.requeststore.extraction.queries import RegexPattern, compile_jmespath
from apps.requeststore.extraction.rules import ExtractionRule, FollowRule
from apps.requeststore.extraction.step_compiler import read_steps
from apps.requeststore.extraction.steps import FieldStep, matching
from apps.requeststore.extraction.xpaths import compile_css, compile_xpath, is_absolute
from yardkit import charsets

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}")
FIELD: Final = re.compile(r"[^\W\d]\w{0,62}")
KINDS: Final = ("html", "xml", "json", "text")
# Expression languages of each kind of page; a plain string is in the first one.
LANGUAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "html": ("css", "xpath"),
    "xml": ("xpath", "css"),
    "json": ("jmespath",),
    "text": ("regex",),
}
_PAGE: Final = ("url", "status", "encoding", "text")
RULE_KEYS: Final = frozenset(
    {
        *("type", "each", "fields", "follow", "status", "encoding"),
        *("at_least", "most", "namespaces", "description"),
    }
)
FIELD_KEYS: Final = frozenset(
    {
        *("css", "xpath", "jmespath", "regex", "const", "page", "header", "meta"),
        *("steps", "as", "list", "required", "default", "format", "zone"),
        *("fields", "description"),
    }
)
FOLLOW_KEYS: Final = frozenset(
    {"css", "xpath", "jmespath", "regex", "steps", "rule", "most", "depth", "keep_meta"}
)
_SOURCES: Final = ("css", "xpath", "jmespath", "const", "page", "header", "meta")


class RuleReader:
    """Compiles one rule; problems go to ``notes``."""

    def __init__(self, notes: ValidationNotes, names: frozenset[str]) -> None:
        self._notes = notes
        self._names = names
        self._kind = "html"
        self._namespaces: dict[str, str] = {}
        self._count = 0

    def read(self, name: str, data: Any, place: str) -> ExtractionRule | None:
        notes = self._notes
        if not notes.keys(data, RULE_KEYS, place):
            return None
        self._kind = notes.choice(data, "type", KINDS, "html", place)
        self._namespaces = self._read_namespaces(data, place)
        encoding = notes.text(data, "encoding", place, most=40)
        if encoding and charsets.known(encoding) is None:
            notes.add(f"{place}.encoding", "bad_encoding", "no such encoding")
        record_selector = self._read_each(data, place)
        inside = "each" in data
        fields = self._read_fields(data.get("fields", {}), f"{place}.fields", 0, inside=inside)
        follow = self._read_follow(data, place)
        if not fields and not follow and not notes.found_in(place):
            notes.add(place, "empty_rule", "it has neither fields nor follow")
        if inside and not fields and not notes.found_in(place):
            notes.add(f"{place}.each", "empty_rule", "it has no fields for its records")
        most = notes.whole(data, "most", place, 1, limits.MAX_RECORDS, limits.MAX_RECORDS)
        at_least = notes.whole(data, "at_least", place, 0, limits.MAX_RECORDS, 0)
        if at_least and not inside:
            notes.add(f"{place}.at_least", "no_each", "it is about the records of each")
        if at_least > most:
            notes.add(f"{place}.at_least", "bad_number", "more than most")
        return ExtractionRule(
            name=name,
            kind=self._kind,
            fields=fields,
            each=record_selector,
            at_least=at_least,
            most=most,
            statuses=self._read_statuses(data, place),
            encoding=encoding,
            follow=follow,
        )

    def _read_statuses(self, data: Mapping[str, Any], place: str) -> frozenset[int]:
        given = data.get("status", [200])
        place = f"{place}.status"
        given = given if isinstance(given, list) else [given]
        statuses = set()
        for status in given:
            if type(status) is int and 100 <= status <= 599:
                statuses.add(status)
            elif isinstance(status, str) and re.fullmatch("[1-5]xx", status):
                statuses |= set(range(int(status[0]) * 100, int(status[0]) * 100 + 100))
            else:
                self._notes.add(place, "bad_status", "use numbers such as 200, or 2xx")
        if not given:
            self._notes.add(place, "bad_status", "no page would be read")
        return frozenset(statuses)

    def _read_namespaces(self, data: Mapping[str, Any], place: str) -> dict[str, str]:
        given = data.get("namespaces", {})
        place = f"{place}.namespaces"
        if not isinstance(given, dict) or len(given) > limits.MAX_NAMESPACES:
            self._notes.add(place, "bad_namespaces", "use an object of prefixes and addresses")
            return {}
        namespaces = {}
        for prefix, address in given.items():
            if not isinstance(prefix, str) or not re.fullmatch(r"[A-Za-z_][\w.\-]*", prefix):
                self._notes.add(place, "bad_namespaces", "a prefix is letters and digits")
            elif not isinstance(address, str) or not re.fullmatch(r"[\x21-\x7e]{1,300}", address):
                self._notes.add(f"{place}.{prefix}", "bad_namespaces", "use an address")
            else:
                namespaces[prefix] = address
        if given and self._kind != "xml":
            self._notes.add(place, "bad_namespaces", "only XML has namespaces")
        return namespaces

    def _read_each(self, data: Mapping[str, Any], place: str) -> ValueSource | None:
        if "each" not in data:
            return None
        given = data["each"]
        place = f"{place}.each"
        if isinstance(given, str):
            given = {LANGUAGES[self._kind][0]: given}
        if not self._notes.keys(given, frozenset(LANGUAGES[self._kind]), place):
            return None
        return self._read_source(given, place, opened=True, inside=False)

    # --- fields ---------------------------------------------------------------------------------

    def _read_fields(self, data: Any, place: str, depth: int, *, inside: bool) -> list[RecordField]:
        if not isinstance(data, dict):
            self._notes.add(place, "bad_fields", "use an object of names and fields")
            return []
        if depth >= limits.MAX_DEPTH:
            text = f"more than {limits.MAX_DEPTH} records inside one another"
            self._notes.add(place, "too_deep", text)
            return []
        fields = []
        for name, given in data.items():
            self._count += 1
            if self._count > limits.MAX_FIELDS:
                text = f"a rule has at most {limits.MAX_FIELDS} fields"
                self._notes.add(place, "too_many", text)
                break
            if not isinstance(name, str) or not FIELD.fullmatch(name):
                text = f"{str(name)[:64]!r}: use letters, digits and _, a letter first"
                self._notes.add(place, "bad_name", text)
                continue
            field = self._read_field(name, given, f"{place}.{name}", depth, inside=inside)
            if field is not None:
                fields.append(field)
        return fields

    def _read_field(
        self, name: str, data: Any, place: str, depth: int, *, inside: bool
    ) -> RecordField | None:
        notes = self._notes
        if isinstance(data, str):
            data = {LANGUAGES[self._kind][0]: data}
        if not notes.keys(data, FIELD_KEYS, place):
            return None
        many = notes.truth(data, "list", place)
        required = notes.truth(data, "required", place)
        default = notes.plain(data, "default", place, [] if many else None)
        if required and "default" in data:
            notes.add(f"{place}.default", "no_use", "a required field needs none", warning=True)
        nested = "fields" in data
        source = self._read_source(data, place, opened=many or "steps" in data, inside=inside)
        if nested:
            for key in ("as", "steps", "const", "page", "header", "meta", "format", "zone"):
                if key in data:
                    notes.add(f"{place}.{key}", "no_use", "a field with fields is a record")
            fields = self._read_fields(data["fields"], f"{place}.fields", depth + 1, inside=True)
            if source is None or not fields:
                if not notes.found_in(place):
                    notes.add(f"{place}.fields", "empty_rule", "it has no fields")
                return None
            return RecordField(
                name=name, source=source, many=many, required=required, default=default,
                fields=fields, kind="record",
            )  # fmt: skip
        kind, cast = self._read_cast(data, place)
        steps = self._read_steps(data, place)
        if source is None:
            return None
        return RecordField(
            name=name, source=source, steps=steps, cast=cast, kind=kind,
            markup=("xml" if self._kind == "xml" else "html") if kind == "html" else "",
            many=many, required=required, default=default,
        )  # fmt: skip

    def _read_cast(self, data: Mapping[str, Any], place: str) -> tuple[str, Cast]:
        usual = "text"
        if (
            self._kind == "json"
            or "const" in data
            or "meta" in data
            or data.get("page") == "status"
        ):
            usual = "any"
        kind = self._notes.choice(data, "as", (*CASTS, "datetime"), usual, place)
        if kind == "html" and self._kind not in ("html", "xml"):
            self._notes.add(f"{place}.as", "bad_type", f"a page of {self._kind} has no markup")
        zone = self._notes.zone(data, "zone", place)
        formats = self._notes.formats(data, "format", place)
        if kind != "datetime":
            for key in ("zone", "format"):
                if key in data:
                    self._notes.add(f"{place}.{key}", "no_use", "it is for as: datetime")
            return kind, CASTS[kind]
        return kind, datetime_with(formats, zone)

    def _read_steps(self, data: Mapping[str, Any], place: str) -> list[FieldStep]:
        steps = []
        if "regex" in data and self._source_key(data) is not None:
            pattern = self._notes.compiled(data, "regex", place, RegexPattern)
            if pattern is not None:
                steps.append(matching(pattern))
        return steps + read_steps(data.get("steps", []), f"{place}.steps", self._notes)

    def _source_key(self, data: Mapping[str, Any]) -> str | None:
        return next((key for key in _SOURCES if key in data), None)

    def _read_source(
        self, data: Mapping[str, Any], place: str, *, opened: bool, inside: bool
    ) -> ValueSource | None:
        notes = self._notes
        given = [key for key in _SOURCES if key in data]
        if len(given) > 1:
            notes.add(place, "two_sources", f"it has {' and '.join(given)}; use one of them")
            return None
        if not given:
            if "regex" not in data:
                text = f"it has no source: {', '.join((*LANGUAGES[self._kind], 'const', 'page'))}"
                notes.add(place, "no_source", text)
                return None
            pattern = notes.compiled(data, "regex", place, RegexPattern)
            return TextSource(pattern) if pattern is not None else None
        key = given[0]
        if key in ("css", "xpath", "jmespath"):
            return self._read_query(data, key, place, opened=opened, inside=inside)
        if key == "const":
            return ConstSource(notes.plain(data, "const", place, None))
        if key == "page":
            return PageSource(notes.choice(data, "page", _PAGE, "url", place))
        return PageSource(key, notes.text(data, key, place, most=200, needed=True))

    def _read_query(
        self, data: Mapping[str, Any], key: str, place: str, *, opened: bool, inside: bool
    ) -> ValueSource | None:
        notes = self._notes
        if key not in LANGUAGES[self._kind]:
            text = f"a page of {self._kind} is read by {' or '.join(LANGUAGES[self._kind])}"
            notes.add(f"{place}.{key}", "wrong_language", text)
            return None
        if key == "jmespath":
            query = notes.compiled(data, key, place, compile_jmespath)
            return QuerySource(query, opened) if query is not None else None
        if key == "css":
            nodes = notes.compiled(
                data, key, place, lambda text: compile_css(text, xml=self._kind == "xml")
            )
            return NodeSource(nodes) if nodes is not None else None
        nodes = notes.compiled(data, key, place, lambda text: compile_xpath(text, self._namespaces))
        if nodes is None:
            return None
        if inside and is_absolute(data[key]):
            text = "it begins at the page, not at its record; .// looks inside the record"
            notes.add(f"{place}.{key}", "from_the_page", text, offset=0, warning=True)
        return NodeSource(nodes)

    # --- follow ---------------------------------------------------------------------------------

    def _read_follow(self, data: Mapping[str, Any], place: str) -> list[FollowRule]:
        given = data.get("follow", [])
        place = f"{place}.follow"
        if not isinstance(given, list) or len(given) > limits.MAX_FOLLOWS:
            text = f"use a list of at most {limits.MAX_FOLLOWS}"
            self._notes.add(place, "bad_follow", text)
            return []
        links = [self._read_link(link, f"{place}[{index}]") for index, link in enumerate(given)]
        return [link for link in links if link is not None]

    def _read_link(self, data: Any, place: str) -> FollowRule | None:
        notes = self._notes
        if not notes.keys(data, FOLLOW_KEYS, place):
            return None
        rule = notes.text(data, "rule", place, most=64, needed=True)
        if rule and rule not in self._names:
            notes.add(f"{place}.rule", "unknown_rule", f"there is no rule {rule}")
        source = self._read_source(data, place, opened=True, inside=False)
        steps = self._read_steps(data, place)
        most = notes.whole(data, "most", place, 1, limits.MAX_FOLLOW, 100)
        depth = notes.whole(data, "depth", place, 1, limits.MAX_FOLLOW_DEPTH, 1)
        keep_meta = notes.truth(data, "keep_meta", place, usual=True)
        if source is None:
            return None
        links = RecordField(
            name="url", source=source, steps=steps, cast=CASTS["url"], kind="url", many=True
        )
        return FollowRule(links=links, rule=rule, most=most, depth=depth, keep_meta=keep_meta)


def read_rules(data: Any, place: str) -> tuple[dict[str, ExtractionRule], list[RuleProblem]]:
    """Return compiled rules by name, and all problems; rules with errors are incomplete."""
    notes = ValidationNotes()
    if not isinstance(data, dict):
        notes.add(place, "bad_rules", "use an object of names and rules")
        return {}, notes.problems
    if len(data) > limits.MAX_RULES:
        notes.add(place, "too_many", f"a biz has at most {limits.MAX_RULES} rules")
        return {}, notes.problems
    names = frozenset(str(name) for name in data)
    rules = {}
    for name, given in data.items():
        if not isinstance(name, str | int) or not NAME.fullmatch(str(name)):
            text = f"{str(name)[:64]!r}: use letters, digits, _ . and -, at most 64"
            notes.add(place, "bad_name", text)
            continue
        rule = RuleReader(notes, names).read(str(name), given, f"{place}.{name}")
        if rule is not None:
            rules[str(name)] = rule
    return rules, notes.problems
