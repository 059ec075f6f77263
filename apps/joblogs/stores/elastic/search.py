"""Search over many streams."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Annotated, Any, Final

import msgspec
from elasticsearch.dsl import A, Q
from elasticsearch.dsl import Search as Query

from apps.joblogs.engine.moments import microseconds, moment_of
from apps.joblogs.engine.words import Phrase, phrases_of
from apps.joblogs.stores.accounts import as_stored
from apps.joblogs.stores.base import BadQuery, ErrorCount, FoundLines, Search, StoredLine
from apps.joblogs.stores.elastic.connection import Answer, ElasticConnection
from apps.joblogs.stores.elastic.documents import stored_line
from apps.joblogs.stores.elastic.indexes import IndexNames
from apps.joblogs.stores.elastic.pages import LOOKED_AT, MOST_HITS, containing

# By time, then by place, which is unique.
ORDER: Final = ("at", "stream", "boot_number", "seq")
LONGEST_CURSOR: Final = 500
# Limit of words that a single character at the end of a phrase may expand to; below the servers'
# minimum of 1,024.
MOST_BEGUN: Final = 1000
# Groups returned by each shard, enough to count small groups, too.
LEAST_GROUPS: Final = 1000
# Values that a server accepts in one ``terms`` query.
MOST_TERMS: Final = 65_536


# Range of the type ``long``; other numbers cause an internal server error.
_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Cursor(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    at: _Number
    stream: str
    boot_number: _Number
    seq: _Number


class ElasticSearch:
    """Search and error counts. Thread-safe. Raises ``LogStoreUnavailable``."""

    def __init__(self, connection: ElasticConnection, names: IndexNames) -> None:
        self._connection = connection
        self._indexes = names.lines

    def search(self, search: Search, *, cursor: str, limit: int) -> FoundLines:
        """See ``LogStore.search``."""
        after = list(msgspec.structs.astuple(_read_cursor(cursor))) if cursor else None
        query = _query(search)
        if query is None or limit < 1:
            return FoundLines([])
        query = query.sort(*({name: {"order": "desc"}} for name in ORDER))
        lines: list[StoredLine] = []
        last: list[Any] = []
        wanted = as_stored(search.contains).casefold()
        for hit in self._walk(query, after, limit + 1, search.contains):
            line = stored_line(hit)
            if wanted not in line.text.casefold():
                continue
            if len(lines) == limit:
                return FoundLines(lines, _write_cursor(last))
            lines.append(line)
            last = hit["sort"]
        return FoundLines(lines)

    def groups(self, search: Search, *, limit: int) -> list[ErrorCount]:
        """See ``LogStore.groups``. Counts are approximate for very many groups."""
        query = _query(search)
        if query is None or limit < 1:
            return []
        kinds = A(
            "terms",
            field="kind",
            size=limit,
            shard_size=max(LEAST_GROUPS, 2 * limit),
            order={"last_at": "desc"},
        )
        kinds.metric("last_at", "max", field="at").metric("first_at", "min", field="at")
        kinds.metric("streams", "cardinality", field="stream", precision_threshold=10_000)
        kinds.metric("sample", "top_hits", size=1, sort=[{"at": {"order": "desc"}}])
        query = query.filter("exists", field="kind").extra(size=0)
        query.aggs.bucket("kinds", kinds)
        answer = self._connection.search(self._indexes, query.to_dict())
        buckets = answer.get("aggregations", {"kinds": {"buckets": []}})["kinds"]["buckets"]
        return [_group(bucket) for bucket in buckets]

    def _walk(
        self, query: Query, after: list[Any] | None, limit: int, contains: str
    ) -> Iterator[Answer]:
        size = min(MOST_HITS, max(limit, LOOKED_AT) if contains else limit)
        while True:
            page = query.extra(size=size, **({"search_after": after} if after else {}))
            hits = self._connection.search(self._indexes, page.to_dict())["hits"]["hits"]
            yield from hits
            if len(hits) < size:
                return
            after = hits[-1]["sort"]


def _query(search: Search) -> Query | None:
    """Convert the conditions to filters; None if nothing can match."""
    query = Query().extra(track_total_hits=False)
    if search.projects is not None:
        if not search.projects:
            return None
        query = query.filter(_of_projects(sorted(search.projects)))
    exact = {"stream": search.stream, "job": search.job, "fingerprint": search.fingerprint}
    for name, value in exact.items():
        if value not in (None, ""):
            query = query.filter("term", **{name: value})
    if search.levels:
        query = query.filter("terms", level=sorted(search.levels))
    limits = {"gte": search.since, "lt": search.until}
    times = {name: microseconds(at) for name, at in limits.items() if at is not None}
    if times:
        query = query.filter("range", at=times)
    phrases = phrases_of(search.text)
    if search.text.strip() and not phrases:
        raise BadQuery(f"there is no word in {search.text[:40]!r} that could be looked for")
    for phrase in phrases:
        query = query.filter(_words(phrase))
    if search.contains:
        query = query.filter(containing(search.contains))
    return query


def _of_projects(projects: Sequence[int]) -> Any:
    parts = range(0, len(projects), MOST_TERMS)
    return reduce(or_, (Q("terms", project=projects[at : at + MOST_TERMS]) for at in parts))


def _words(phrase: Phrase) -> Any:
    # Analyzed like the text, whose words are cut at 255 characters.
    text = " ".join(phrase.words)
    if not phrase.prefix:
        return Q("match_phrase", words={"query": text})
    if len(phrase.words) == 1:
        return Q("prefix", words={"value": text})
    return Q("match_phrase_prefix", words={"query": text, "max_expansions": MOST_BEGUN})


def _group(bucket: Answer) -> ErrorCount:
    project, job, fingerprint = bucket["key"].split(".", 2)
    return ErrorCount(
        project=int(project),
        job=int(job),
        fingerprint=fingerprint,
        count=bucket["doc_count"],
        streams=bucket["streams"]["value"],
        first_at=moment_of(int(bucket["first_at"]["value"])),
        last_at=moment_of(int(bucket["last_at"]["value"])),
        sample=stored_line(bucket["sample"]["hits"]["hits"][0]),
    )


def _write_cursor(sort: list[Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(sort)).decode().rstrip("=")


def _read_cursor(text: str) -> _Cursor:
    try:
        if len(text) > LONGEST_CURSOR:
            raise ValueError
        body = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(body, type=_Cursor)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise BadQuery(f"{text[:40]!r} is no cursor of a search") from None
