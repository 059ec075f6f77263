"""Indexes and their documents, with versions, and visible to searches after a refresh."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from tests.joblogs.elastic_double.answers import Document, Refusal, error_body
from tests.joblogs.elastic_double.mappings import Mapping, check_index_name, matches, tokens

REFRESH_SECONDS = 1.0
TERM = 1


@dataclass
class Doc:
    """A document and its version."""

    source: Document
    seq_no: int
    version: int = 1
    words: dict[str, list[str]] = field(default_factory=dict)

    def tokens(self, name: str) -> list[str]:
        """The tokens of a text field."""
        if name not in self.words:
            self.words[name] = tokens(self.source.get(name) or "")
        return self.words[name]


@dataclass
class Index:
    """One index."""

    name: str
    mapping: Mapping
    docs: dict[str, Doc] = field(default_factory=dict)
    visible: dict[str, Doc] = field(default_factory=dict)
    seq_no: int = -1
    dirty_since: float | None = None
    write_block: bool = False

    def refresh(self) -> None:
        """Let searches see what is there."""
        self.visible = dict(self.docs)
        self.dirty_since = None

    def searched(self) -> dict[str, Doc]:
        """What searches see."""
        since = self.dirty_since
        if since is not None and time.monotonic() - since >= REFRESH_SECONDS:
            self.refresh()
        return self.visible

    def put(self, kind: str, identity: str, source: Document, given: Document) -> Document:
        """``create`` or ``index``; what became of it, as an item of a bulk answer says it."""
        if self.write_block:
            return self._blocked(identity)
        here = self.docs.get(identity)
        problem = self._conflict(here, given)
        if kind == "create" and here is not None:
            problem = f"document already exists (current version [{here.version}])"
        if problem:
            return self._failed(409, "version_conflict_engine_exception", identity, problem)
        try:
            self.mapping.check(source)
        except Refusal as refusal:
            return self._item(identity, refusal.status) | {"error": refusal.body["error"]}
        version = 1 if here is None else here.version + 1
        self.docs[identity] = Doc(source, self._next(), version)
        done = {"_version": version, "result": "updated" if here else "created"}
        return self._done(identity, 200 if here else 201, done)

    def delete(self, identity: str, given: Document) -> Document:
        """The same for ``delete``."""
        if self.write_block:
            return self._blocked(identity)
        here = self.docs.get(identity)
        problem = self._conflict(here, given)
        if problem:
            return self._failed(409, "version_conflict_engine_exception", identity, problem)
        if here is None:
            return self._done(identity, 404, {"_version": 1, "result": "not_found"})
        del self.docs[identity]
        self._next()
        done = {"_version": here.version + 1, "result": "deleted"}
        return self._done(identity, 200, done)

    def _conflict(self, here: Doc | None, given: Document) -> str:
        if "if_seq_no" not in given:
            return ""
        if here is None:
            return "required seqNo, but no document was found"
        wanted = (given["if_seq_no"], given["if_primary_term"])
        return "" if wanted == (here.seq_no, TERM) else f"current document has {here.seq_no}"

    def _next(self) -> int:
        self.seq_no += 1
        self.dirty_since = self.dirty_since or time.monotonic()
        return self.seq_no

    def _item(self, identity: str, status: int) -> Document:
        return {"_index": self.name, "_id": identity, "status": status}

    def _done(self, identity: str, status: int, more: Document) -> Document:
        versions = {"_seq_no": self.seq_no, "_primary_term": TERM}
        return self._item(identity, status) | more | versions

    def _blocked(self, identity: str) -> Document:
        reason = f"index [{self.name}] blocked by: [FORBIDDEN/8/index write (api)];"
        error = error_body(403, "cluster_block_exception", reason)["error"]
        return self._item(identity, 403) | {"error": error}

    def _failed(self, status: int, kind: str, identity: str, reason: str) -> Document:
        error = error_body(status, kind, f"[{identity}]: version conflict, {reason}")["error"]
        return self._item(identity, status) | {"error": error}


class Indexes:
    """All of them, made by the templates."""

    def __init__(self) -> None:
        self.found: dict[str, Index] = {}
        self.templates: dict[str, tuple[list[str], int, Mapping]] = {}

    def create(self, name: str) -> Index:
        """A new one; it must have a template."""
        check_index_name(name)
        if name in self.found:
            raise Refusal(400, "resource_already_exists_exception", f"index [{name}] exists")
        fitting = [one for one in self.templates.values() if matches(name, one[0])]
        if not fitting:
            raise Refusal(404, "index_not_found_exception", f"no such index [{name}]")
        self.found[name] = Index(name, max(fitting, key=lambda one: one[1])[2])
        return self.found[name]

    def get_or_create(self, name: str) -> Index:
        """As bulk operations do."""
        return self.found.get(name) or self.create(name)

    def named(self, expression: str, options: dict[str, Any]) -> list[Index]:
        """Those of ``a,b-*``; a name without a star must exist unless it may be missing."""
        chosen: dict[str, Index] = {}
        for name in expression.split(","):
            if "*" in name:
                chosen.update({one: self.found[one] for one in self.found if matches(one, [name])})
            elif name in self.found:
                chosen[name] = self.found[name]
            elif options.get("ignore_unavailable") != "true":
                raise Refusal(404, "index_not_found_exception", f"no such index [{name}]")
        return list(chosen.values())
