"""Extraction of records from downloaded pages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from apps.requeststore.daemon.work import (
    DownloadedPage,
    LeasedRequest,
    RequestFailure,
    Result,
    trouble_of_status,
)
from apps.requeststore.engine.entity import Entity
from apps.requeststore.engine.errors import BadSetting
from apps.requeststore.extraction import InvalidExtractionRules, ResponsePage, compile_rules
from apps.requeststore.extraction.processes import shared_extraction_pool


@dataclass(frozen=True, slots=True)
class ExtractionResult:
    """Result of extraction: records, and requests to follow."""

    answer: DownloadedPage
    rule: str
    records: Sequence[Mapping[str, Any]]
    follow: Sequence[Entity] = ()


class PageExtractor:
    """Compiled rules of one version of a biz."""

    def __init__(self, rules: Mapping[str, Any]) -> None:
        """Raises ``BadSetting``."""
        self._data = dict(rules)
        # Content hash: a new version may have changed the rules.
        self._key = hashlib.sha256(msgspec.json.encode(self._data)).hexdigest()
        try:
            self._rules = compile_rules(self._data)
        except InvalidExtractionRules as error:
            raise BadSetting(f"rules: {error}") from error

    def read(self, work: LeasedRequest, result: Result) -> ExtractionResult | RequestFailure:
        """Extract from a page; errors of pages and rules become a ``RequestFailure``."""
        if isinstance(result, RequestFailure):
            return result
        entity = work.entity
        rule = self._rules.find(entity.rule)
        if rule is None or result.status not in rule.statuses:
            trouble = trouble_of_status(result.status)
            if trouble is not None:
                return trouble
        if rule is None and not entity.rule and not self._rules:
            # Without rules, pages are downloaded and nothing is extracted.
            return ExtractionResult(result, "", ())
        page = ResponsePage(
            url=result.url,
            status=result.status,
            headers=result.headers,
            body=result.body,
            meta=entity.meta,
            depth=entity.depth,
            truncated=result.truncated,
        )
        # In a child process: XPath cannot be interrupted in this one.
        extraction = shared_extraction_pool().extract(self._key, self._data, entity.rule, page)
        if extraction.failed:
            return RequestFailure(f"extraction: {extraction.reason}", status=result.status)
        follow = [
            Entity(url=link.url, rule=link.rule, meta=link.meta, depth=link.depth)
            for link in extraction.follow
        ]
        return ExtractionResult(
            result, entity.rule or (rule.name if rule else ""), extraction.records, follow
        )
