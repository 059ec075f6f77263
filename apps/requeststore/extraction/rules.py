"""Compiled rules: rule map -> rule -> records, links and problems of a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from apps.requeststore.extraction.collector import Collector, ExtractionLimitReached
from apps.requeststore.extraction.fields import RecordField, Scope, ValueSource, read_all
from apps.requeststore.extraction.limits import MAX_FOLLOW, MAX_RECORDS
from apps.requeststore.extraction.page import Document, ResponsePage
from apps.requeststore.extraction.problems import BadValue, PageError, PageProblem

DEFAULT_RULE: Final = "default"


class Follow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Link that becomes a request: ``rule`` reads its page, ``depth`` is one more.

    ``meta`` is copied from the page's request.
    """

    url: str
    rule: str
    depth: int
    meta: dict[str, Any] = {}


class Extracted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result for a page. ``failed``: the request fails, nothing is stored.

    ``matched``: records on the page, refused ones included. ``hidden``: problems beyond the first
    hundred.
    """

    records: list[dict[str, Any]] = []
    follow: list[Follow] = []
    problems: list[PageProblem] = []
    failed: bool = False
    matched: int = 0
    hidden: int = 0

    @property
    def reason(self) -> str:
        """Return the reason of a failure in one line; "" without one."""
        if not self.failed:
            return ""
        return next((str(problem) for problem in self.problems if problem.fatal), "not readable")[
            :300
        ]


@dataclass(frozen=True, slots=True)
class FollowRule:
    """Finds links to follow."""

    links: RecordField
    rule: str
    most: int
    depth: int
    keep_meta: bool


@dataclass(frozen=True, slots=True)
class ExtractionRule:
    """Extraction rule for one kind of page."""

    name: str
    kind: str
    fields: Sequence[RecordField]
    each: ValueSource | None = None
    at_least: int = 0
    most: int = MAX_RECORDS
    statuses: frozenset[int] = frozenset({200})
    encoding: str = ""
    follow: Sequence[FollowRule] = ()

    def extract(self, page: ResponsePage) -> Extracted:
        """Extract from a page. Raises nothing that a page or rule could cause."""
        collector = Collector()
        records: list[dict[str, Any]] = []
        follow: list[Follow] = []
        matched = 0
        try:
            document = self.document(page)
            matched = self._read(document, collector, records)
            collector.record = -1
            self._follow(document, collector, follow)
            if document.cut_at:
                collector.problem("page_cut", f"read only up to here: {document.cut_at}")
        except ExtractionLimitReached:
            pass
        except PageError as error:
            collector.problem(error.code, str(error), fatal=True)
        except (RecursionError, MemoryError) as error:
            text = f"the page is too much for its rule: {type(error).__name__}"
            collector.problem("too_much", text, fatal=True)
        return Extracted(
            records=[] if collector.failed else records,
            follow=[] if collector.failed else follow,
            problems=collector.problems,
            failed=collector.failed,
            matched=matched,
            hidden=collector.hidden,
        )

    def document(self, page: ResponsePage, *, any_status: bool = False) -> Document:
        """Parse the page as this rule demands. Raises ``PageError``."""
        if not any_status and page.status not in self.statuses:
            raise PageError("bad_status", f"status {page.status} is none of this rule")
        document = Document(page, encoding=self.encoding, xml=self.kind == "xml")
        # Parsed here, so that a page of another kind fails even for a rule without expressions.
        if self.kind == "json":
            _ = document.data
        elif self.kind != "text":
            _ = document.root
        return document

    def _read(self, document: Document, collector: Collector, records: list[dict[str, Any]]) -> int:
        page = Scope(document)
        if self.each is None:
            if self.fields:
                records.append(read_all(self.fields, page, collector))
            return len(records)
        matched = 0
        for raw in self._matches(self.each, page, collector):
            matched += 1
            if matched > self.most:
                collector.problem("too_many", f"more than {self.most} records", fatal=True)
                raise ExtractionLimitReached
            collector.record = matched - 1
            try:
                scope = self.each.inner(raw, page)
            except BadValue as error:
                collector.problem("bad_record", str(error), fatal=True)
                continue
            records.append(read_all(self.fields, scope, collector))
        if matched < self.at_least:
            collector.record = -1
            text = f"{matched} records; at least {self.at_least} are expected"
            collector.problem("too_few", text, fatal=True)
        return matched

    def _matches(self, each: ValueSource, page: Scope, collector: Collector) -> Iterable[Any]:
        try:
            return each.raw(page)
        except BadValue as error:
            collector.problem("bad_record", str(error), "each", fatal=True)
            return []

    def _follow(self, document: Document, collector: Collector, follow: list[Follow]) -> None:
        page = document.page
        for number, link in enumerate(self.follow):
            if page.depth >= link.depth:
                continue
            urls = link.links.read(Scope(document), collector, f"follow[{number}]") or []
            for url in list(dict.fromkeys(urls))[: link.most]:
                if len(follow) >= MAX_FOLLOW:
                    return
                meta = page.meta if link.keep_meta else {}
                follow.append(Follow(url=url, rule=link.rule, depth=page.depth + 1, meta=meta))


class RuleMap:
    """Compiled rules of one version of a biz; thread-safe."""

    __slots__ = ("_rules",)

    def __init__(self, rules: Mapping[str, ExtractionRule]) -> None:
        self._rules = dict(rules)

    def find(self, name: str) -> ExtractionRule | None:
        """Return a rule by name or number; "" is the rule ``default``, else the only rule."""
        if name:
            return self._rules.get(name)
        if DEFAULT_RULE in self._rules or len(self._rules) != 1:
            return self._rules.get(DEFAULT_RULE)
        return next(iter(self._rules.values()))

    def extract(self, name: str, page: ResponsePage) -> Extracted:
        """Extract from a page by the rule of this name. Raises nothing."""
        rule = self.find(name)
        if rule is None:
            text = f"the biz has no rule {name[:64]!r}" if name else "the request names no rule"
            problem = PageProblem(code="unknown_rule", text=text, fatal=True)
            return Extracted(problems=[problem], failed=True)
        return rule.extract(page)

    @property
    def names(self) -> list[str]:
        return sorted(self._rules)

    def __len__(self) -> int:
        return len(self._rules)
