"""The requests that are known, and what they change."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl, unquote

from tests.joblogs.elastic_double.answers import Document, Refusal, Unsupported, error_body, only
from tests.joblogs.elastic_double.faults import Faults
from tests.joblogs.elastic_double.indexes import TERM, Indexes
from tests.joblogs.elastic_double.mappings import read_template
from tests.joblogs.elastic_double.searches import search

Answer = tuple[int, Document | None]
_TYPE = re.compile(r"application/vnd\.elasticsearch\+(json|x-ndjson);\s*compatible-with=[89]")
_ACTIONS = {"hot": {"set_priority"}, "warm": {"set_priority"}, "delete": {"delete"}}
_META = {"_index", "_id", "if_seq_no", "if_primary_term"}


class Requests:
    """One server's state; one request at a time."""

    def __init__(self, faults: Faults) -> None:
        self.indexes = Indexes()
        self.policies: dict[str, Document] = {}
        self.faults = faults
        self._lock = threading.Lock()

    def answer(self, method: str, target: str, content_type: str, body: bytes) -> Answer:
        """Status and body."""
        path, _mark, query = target.partition("?")
        try:
            kind = _TYPE.fullmatch(content_type) if body else None
            if body and kind is None:
                reason = f"Content-Type header [{content_type}] is not supported"
                raise Refusal(406, "media_type_header_exception", reason)
            with self._lock:
                return self._route(
                    method,
                    unquote(path),
                    dict(parse_qsl(query, keep_blank_values=True)),
                    body,
                    kind[1] if kind else "",
                )
        except Unsupported as unsupported:
            return 501, error_body(501, "double_unsupported", str(unsupported))
        except Refusal as refusal:
            return refusal.status, refusal.body

    def _route(self, method: str, path: str, options: Document, body: bytes, kind: str) -> Answer:
        for pattern, methods, allowed, handler in _ROUTES:
            found = re.fullmatch(pattern, path)
            if found is None or method not in methods:
                continue
            only(options, allowed, f"{method} {path}")
            if (kind == "x-ndjson") != (handler is Requests._bulk):
                raise Unsupported(f"{method} {path} with {kind}")
            return handler(self, found, options, body)
        raise Unsupported(f"{method} {path}")

    def _info(self, _found: re.Match[str], _options: Document, _body: bytes) -> Answer:
        version = {"number": "9.1.0", "build_flavor": "default"}
        name = {"name": "double", "cluster_name": "double", "tagline": "You Know, for Search"}
        return 200, name | {"version": version}

    def _policy(self, found: re.Match[str], _options: Document, body: bytes) -> Answer:
        given = _read(body)
        only(given, {"policy"}, "policy")
        only(given["policy"], {"phases"}, "policy")
        for phase, one in given["policy"]["phases"].items():
            only(one, {"min_age", "actions"}, phase)
            only(one["actions"], _ACTIONS.get(phase, set()), phase)
            if not re.fullmatch(r"\d+(ms|d)", one["min_age"]):
                raise Refusal(400, "illegal_argument_exception", f"min_age of {phase}")
        _check_order(given["policy"]["phases"])
        self.policies[found[1]] = given["policy"]
        return 200, {"acknowledged": True}

    def _delete_policy(self, found: re.Match[str], _options: Document, _body: bytes) -> Answer:
        if self.policies.pop(found[1], None) is None:
            raise Refusal(404, "resource_not_found_exception", f"no policy [{found[1]}]")
        return 200, {"acknowledged": True}

    def _delete_template(self, found: re.Match[str], _options: Document, _body: bytes) -> Answer:
        if self.indexes.templates.pop(found[1], None) is None:
            raise Refusal(404, "index_template_missing_exception", f"no template [{found[1]}]")
        return 200, {"acknowledged": True}

    def _get(self, found: re.Match[str], options: Document, _body: bytes) -> Answer:
        return 200, {one.name: {} for one in self.indexes.named(found[1], options)}

    def _template(self, found: re.Match[str], _options: Document, body: bytes) -> Answer:
        self.indexes.templates[found[1]] = read_template(_read(body))
        return 200, {"acknowledged": True}

    def _index(self, found: re.Match[str], _options: Document, body: bytes) -> Answer:
        if body and _read(body):
            raise Unsupported("an index with settings of its own")
        self.indexes.create(found[1])
        return 200, {"acknowledged": True, "shards_acknowledged": True, "index": found[1]}

    def _exists(self, found: re.Match[str], _options: Document, _body: bytes) -> Answer:
        return (200 if found[1] in self.indexes.found else 404), None

    def _delete(self, found: re.Match[str], options: Document, _body: bytes) -> Answer:
        if "*" in found[1]:
            reason = "Wildcard expressions or all indices are not allowed"
            raise Refusal(400, "illegal_argument_exception", reason)
        for index in self.indexes.named(found[1], options):
            del self.indexes.found[index.name]
        return 200, {"acknowledged": True}

    def _refresh(self, found: re.Match[str], options: Document, _body: bytes) -> Answer:
        indexes = self.indexes.named(found[1], options)
        for index in indexes:
            index.refresh()
        return 200, {"_shards": {"total": len(indexes), "successful": len(indexes), "failed": 0}}

    def _stats(self, found: re.Match[str], options: Document, _body: bytes) -> Answer:
        indexes = self.indexes.named(found[1], options)
        # Documents that no refresh has made visible are not counted.
        docs = {one.name: {"docs": {"count": len(one.searched()), "deleted": 0}} for one in indexes}
        shown = {name: {"primaries": one, "total": one} for name, one in docs.items()}
        return 200, {"_shards": {"total": len(docs)}, "_all": {}, "indices": shown}

    def _block(self, found: re.Match[str], _options: Document, _body: bytes) -> Answer:
        for index in self.indexes.named(found[1], {}):
            index.write_block = True
        return 200, {"acknowledged": True, "shards_acknowledged": True, "indices": []}

    def _settings(self, found: re.Match[str], options: Document, _body: bytes) -> Answer:
        indexes = self.indexes.named(found[1], options)
        blocked = {"settings": {"index.blocks.write": "true"}}
        return 200, {one.name: blocked for one in indexes if one.write_block}

    def _change_settings(self, found: re.Match[str], options: Document, body: bytes) -> Answer:
        if _read(body) != {"index.blocks.write": None}:
            raise Unsupported(f"settings: {body!r}")
        for index in self.indexes.named(found[1], options):
            index.write_block = False
        return 200, {"acknowledged": True}

    def _mget(self, found: re.Match[str], _options: Document, body: bytes) -> Answer:
        given = _read(body)
        only(given, {"ids"}, "mget")
        if not given["ids"]:
            raise Refusal(400, "action_request_validation_exception", "no documents to get")
        return 200, {"docs": [self._got(found[1], name) for name in given["ids"]]}

    def _got(self, name: str, identity: str) -> Document:
        place = {"_index": name, "_id": identity}
        index = self.indexes.found.get(name)
        if index is None:
            reason = f"no such index [{name}]"
            return place | {"error": error_body(404, "index_not_found_exception", reason)["error"]}
        doc = index.docs.get(identity)
        if doc is None:
            return place | {"found": False}
        versions = {"_version": doc.version, "_seq_no": doc.seq_no, "_primary_term": TERM}
        source = index.mapping.shown(doc.source)
        return place | versions | {"found": True, "_source": source}

    def _search(self, found: re.Match[str], options: Document, body: bytes) -> Answer:
        indexes = self.indexes.named(found[1], options)
        return 200, search(indexes, _read(body))

    def _bulk(self, _found: re.Match[str], _options: Document, body: bytes) -> Answer:
        if not body.endswith(b"\n"):
            reason = "The bulk request must be terminated by a newline [\\n]"
            raise Refusal(400, "illegal_argument_exception", reason)
        lines = iter(body.splitlines())
        items: list[Document] = []
        for line in lines:
            ((kind, meta),) = json.loads(line).items()
            if kind not in ("create", "index", "delete"):
                raise Unsupported(f"bulk {kind}")
            only(meta, _META, f"bulk {kind}")
            source = {} if kind == "delete" else json.loads(next(lines))
            items.append({kind: self._operate(kind, meta, source)})
        failed = any("error" in item for one in items for item in one.values())
        return 200, {"took": 1, "errors": failed, "items": items}

    def _operate(self, kind: str, meta: Document, source: Document) -> Document:
        name, identity = meta["_index"], meta["_id"]
        if len(identity.encode()) > 512:
            raise Refusal(400, "illegal_argument_exception", "id is too long")
        refused = self.faults.refused_item(name, identity)
        if refused is not None:
            return {"_index": name, "_id": identity} | refused
        if kind == "delete":
            index = self.indexes.found.get(name)
            if index is None:
                error = error_body(404, "index_not_found_exception", f"no such index [{name}]")
                return {"_index": name, "_id": identity} | error
            return index.delete(identity, meta)
        return self.indexes.get_or_create(name).put(kind, identity, source, meta)


def _check_order(phases: Document) -> None:
    """Refuse a phase that would begin before an earlier one, whose ages are days."""
    ages = [(name, phases[name]["min_age"]) for name in ("warm", "delete") if name in phases]
    for (earlier, least), (later, age) in pairwise(ages):
        if int(age.removesuffix("d")) < int(least.removesuffix("d")):
            reason = (
                f"Your policy is configured to run the {later} phase (min_age: {age}) before the"
                f" {earlier} phase (min_age: {least})."
            )
            raise Refusal(400, "illegal_argument_exception", reason)


def _read(body: bytes) -> Any:
    try:
        return json.loads(body or b"{}")
    except ValueError as error:
        raise Refusal(400, "parse_exception", str(error)) from None


_NAME = r"/([^/_][^/]*)"
_MISSING = {"ignore_unavailable", "allow_no_indices"}
_Handler = Callable[[Requests, re.Match[str], Document, bytes], Answer]
_ROUTES: list[tuple[str, set[str], set[str], _Handler]] = [
    ("/", {"GET"}, set(), Requests._info),
    (r"/_ilm/policy/([^/]+)", {"PUT"}, set(), Requests._policy),
    (r"/_ilm/policy/([^/]+)", {"DELETE"}, set(), Requests._delete_policy),
    (r"/_index_template/([^/]+)", {"PUT"}, set(), Requests._template),
    (r"/_index_template/([^/]+)", {"DELETE"}, set(), Requests._delete_template),
    ("/_bulk", {"PUT", "POST"}, set(), Requests._bulk),
    (f"{_NAME}/_mget", {"POST", "GET"}, {"realtime"}, Requests._mget),
    (
        f"{_NAME}/_search",
        {"POST", "GET"},
        _MISSING | {"allow_partial_search_results"},
        Requests._search,
    ),
    (f"{_NAME}/_refresh", {"POST", "GET"}, _MISSING, Requests._refresh),
    (f"{_NAME}/_stats/docs", {"GET"}, set(), Requests._stats),
    (f"{_NAME}/_block/write", {"PUT"}, set(), Requests._block),
    (
        f"{_NAME}/_settings/index.blocks.write",
        {"GET"},
        _MISSING | {"flat_settings"},
        Requests._settings,
    ),
    (f"{_NAME}/_settings", {"PUT"}, {"ignore_unavailable"}, Requests._change_settings),
    (_NAME, {"PUT"}, set(), Requests._index),
    (_NAME, {"HEAD"}, set(), Requests._exists),
    (_NAME, {"GET"}, set(), Requests._get),
    (_NAME, {"DELETE"}, {"ignore_unavailable"}, Requests._delete),
]
