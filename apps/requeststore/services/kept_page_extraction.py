"""Extraction of records from one kept page."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from apps.datasets.engine.errors import PageUnavailable
from apps.datasets.engine.warc_records import HttpMessage, message_of
from apps.datasets.queries.kept_pages import KeptPage, read_member
from apps.requeststore.engine.entity import Entity, decode_entity
from apps.requeststore.engine.errors import BadSetting, InvalidRequest
from apps.requeststore.extraction import InvalidExtractionRules, ResponsePage, compile_rules
from apps.requeststore.extraction.processes import shared_extraction_pool
from apps.requeststore.services.store import BoundBiz
from apps.requeststore.sinks.base import RequestRecords
from apps.requeststore.stores.base import StoredRequest
from yardkit.objects import ObjectStoreUnavailable

# Reasons of pages that cannot be read begin with it.
NOT_KEPT: Final = "kept page: "


class KeptPageExtractor:
    """Extracts records from kept pages by the active rules of a biz. Thread-safe."""

    def __init__(self, bound: BoundBiz, dataset_id: int, extraction: int) -> None:
        """Raises ``BadSetting``."""
        self._bound = bound
        self._dataset_id = dataset_id
        self._extraction = extraction
        self._data = dict(bound.settings.rules)
        self._key = hashlib.sha256(msgspec.json.encode(self._data)).hexdigest()
        try:
            self._rules = compile_rules(self._data)
        except InvalidExtractionRules as error:
            raise BadSetting(f"rules: {error}") from error

    def read(self, request: StoredRequest, page: KeptPage) -> RequestRecords | str:
        """Return the records of a page, or why there are none.

        Raises ``ObjectStoreUnavailable``.
        """
        try:
            entity = decode_entity(request.data)
            member = read_member(
                self._bound.project_id, page, page.offset, page.length, biz_dataset=self._dataset_id
            )
            message = message_of(member)
        except PageUnavailable as error:
            if isinstance(error.__cause__, ObjectStoreUnavailable):
                raise error.__cause__ from error
            return f"{NOT_KEPT}{error.params['why']}"
        except InvalidRequest as error:
            return str(error)
        # In a child process: XPath cannot be interrupted in this one.
        extraction = shared_extraction_pool().extract(
            self._key, self._data, entity.rule, _response(page, message, entity)
        )
        if extraction.failed:
            return f"extraction: {extraction.reason}"
        rule = self._rules.find(entity.rule)
        return RequestRecords(
            request_id=request.id,
            ts=request.ts,
            biz=request.biz,
            rule=entity.rule or (rule.name if rule else ""),
            url=page.final_url or page.url,
            fetched_at=int(page.at.timestamp() * 1000),
            rows=extraction.records,
            meta=entity.meta,
            extraction=self._extraction,
        )


def _response(page: KeptPage, message: HttpMessage, entity: Entity) -> ResponsePage:
    # The body was kept without HTTP compression, whatever its headers say.
    return ResponsePage(
        url=page.final_url or page.url,
        status=page.status,
        headers=message.headers,
        body=message.body,
        meta=entity.meta,
        depth=entity.depth,
        truncated=page.truncated,
    )
