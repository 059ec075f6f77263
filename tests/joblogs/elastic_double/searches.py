"""``_search``: query, sort, search_after and aggregations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.joblogs.elastic_double.answers import Document, Refusal, Unsupported, only
from tests.joblogs.elastic_double.indexes import TERM, Doc, Index
from tests.joblogs.elastic_double.mappings import Mapping
from tests.joblogs.elastic_double.queries import compiled

MOST_HITS = 10_000
MOST_BUCKETS = 65_536
_SORTABLE = {"keyword", "long", "integer", "boolean"}
_BODY = {
    "query",
    "sort",
    "size",
    "search_after",
    "track_total_hits",
    "aggs",
    "_source",
    "seq_no_primary_term",
}
Hit = tuple[Index, str, Doc]


def search(indexes: Sequence[Index], body: Document) -> Document:
    """The answer to a search in these."""
    only(body, _BODY, "search")
    shards = {"total": len(indexes), "successful": len(indexes), "skipped": 0, "failed": 0}
    answer: Document = {"took": 1, "timed_out": False, "_shards": shards}
    found: list[Hit] = []
    for index in indexes:
        test = compiled(body.get("query", {"match_all": {}}), index.mapping)
        found += [(index, name, doc) for name, doc in index.searched().items() if test(doc)]
    size = body.get("size", 10)
    if not 0 <= size <= MOST_HITS:
        raise Refusal(400, "illegal_argument_exception", "Result window is too large")
    answer["hits"] = {"max_score": None, "hits": _hits(found, body, size)}
    if body.get("track_total_hits") is not False:
        answer["hits"]["total"] = {"value": len(found), "relation": "eq"}
    if "aggs" in body and indexes:
        answer["aggregations"] = _aggregate(body["aggs"], found)
    return answer


def _hits(found: list[Hit], body: Document, size: int) -> list[Document]:
    after = body.get("search_after")
    orders = _orders(body.get("sort", []))
    if after is not None and len(after) != len(orders):
        raise Refusal(400, "illegal_argument_exception", "search_after has not as many values")
    keyed = _sorted(found, orders)
    if after is not None:
        keyed = [one for one in keyed if _is_behind(one[0], after, orders)]
    return [_hit(hit, key, body) for key, hit in keyed[:size]]


def _hit(hit: Hit, key: list[Any], body: Document) -> Document:
    index, name, doc = hit
    source = index.mapping.shown(doc.source)
    wanted = body.get("_source")
    if wanted is not None:
        if not isinstance(wanted, list):
            raise Unsupported(f"_source {wanted}")
        source = {one: source[one] for one in wanted if one in source}
    shown: Document = {"_index": index.name, "_id": name, "_score": None, "_source": source}
    if body.get("seq_no_primary_term"):
        shown |= {"_seq_no": doc.seq_no, "_primary_term": TERM}
    if key:
        shown["sort"] = key
    return shown


def _orders(sort: list[Any]) -> list[tuple[str, bool]]:
    orders: list[tuple[str, bool]] = []
    for one in sort:
        if isinstance(one, str):
            orders.append((one, False))
            continue
        ((name, option),) = one.items()
        only(option, {"order"}, "sort")
        orders.append((name, option["order"] == "desc"))
    return orders


def _sorted(found: list[Hit], orders: list[tuple[str, bool]]) -> list[tuple[list[Any], Hit]]:
    for index in {id(hit[0]): hit[0] for hit in found}.values():
        for name, _down in orders:
            if index.mapping.kind(name, by_value=True) not in _SORTABLE:
                raise Refusal(400, "illegal_argument_exception", f"cannot sort by [{name}]")
    keyed = [([hit[2].source[name] for name, _down in orders], hit) for hit in found]
    for place, (_name, down) in reversed(list(enumerate(orders))):
        keyed.sort(key=lambda one: one[0][place], reverse=down)
    return keyed


def _is_behind(key: list[Any], after: list[Any], orders: list[tuple[str, bool]]) -> bool:
    for mine, theirs, (_name, down) in zip(key, after, orders, strict=True):
        if type(mine) is not type(theirs):
            raise Refusal(400, "illegal_argument_exception", f"search_after: {theirs!r}")
        if mine != theirs:
            return bool(mine < theirs) if down else bool(mine > theirs)
    return False


# --- aggregations -----------------------------------------------------------------------------


def _aggregate(aggs: Document, found: list[Hit]) -> Document:
    answers: Document = {}
    for name, one in aggs.items():
        below = one.get("aggs", {})
        kinds = set(one) - {"aggs"}
        if len(kinds) != 1 or not kinds <= set(_KINDS):
            raise Unsupported(f"aggregation {', '.join(sorted(kinds))}")
        kind = kinds.pop()
        answers[name] = _KINDS[kind](one[kind], below, found)
    return answers


def _kind(found: list[Hit], name: str) -> str:
    mapping: Mapping | None = found[0][0].mapping if found else None
    kind = mapping.kind(name, by_value=True) if mapping is not None else "keyword"
    if kind not in _SORTABLE:
        raise Refusal(400, "illegal_argument_exception", f"cannot aggregate [{name}], a {kind}")
    return kind


def _numbers(found: list[Hit], name: str) -> list[int]:
    if found and _kind(found, name) not in ("long", "integer"):
        raise Unsupported(f"numbers of {name}")
    return [hit[2].source[name] for hit in found if hit[2].source.get(name) is not None]


def _terms(body: Document, below: Document, found: list[Hit]) -> Document:
    only(body, {"field", "size", "shard_size", "order"}, "terms")
    if not 1 <= body.get("size", 10) <= MOST_BUCKETS:
        raise Refusal(400, "illegal_argument_exception", "[size] must be greater than 0")
    name = body["field"]
    _kind(found, name)
    groups: dict[Any, list[Hit]] = {}
    for hit in found:
        value = hit[2].source.get(name)
        if value is not None:
            groups.setdefault(value, []).append(hit)
    buckets = [
        {"key": key, "doc_count": len(hits), **_aggregate(below, hits)}
        for key, hits in groups.items()
    ]
    ((order, direction),) = body.get("order", {"_count": "desc"}).items()
    buckets.sort(key=lambda one: str(one["key"]))
    value_of: Callable[[Document], Any] = lambda one: (  # noqa: E731 - two cases of one
        one["doc_count"] if order == "_count" else one[order]["value"]
    )
    buckets.sort(key=value_of, reverse=direction == "desc")
    shown = buckets[: body.get("size", 10)]
    rest = sum(one["doc_count"] for one in buckets[len(shown) :])
    return {"doc_count_error_upper_bound": 0, "sum_other_doc_count": rest, "buckets": shown}


def _composite(body: Document, below: Document, found: list[Hit]) -> Document:
    only(body, {"sources", "size", "after"}, "composite")
    names: dict[str, str] = {}
    for source in body["sources"]:
        ((name, one),) = source.items()
        only(one, {"terms"}, "composite")
        only(one["terms"], {"field"}, "composite")
        names[name] = one["terms"]["field"]
        _kind(found, names[name])
    groups: dict[tuple[Any, ...], list[Hit]] = {}
    for hit in found:
        groups.setdefault(tuple(hit[2].source[one] for one in names.values()), []).append(hit)
    after = tuple(body["after"][name] for name in names) if "after" in body else None
    keys = sorted(key for key in groups if after is None or key > after)[: body.get("size", 10)]
    buckets = [
        {
            "key": dict(zip(names, key, strict=True)),
            "doc_count": len(groups[key]),
            **_aggregate(below, groups[key]),
        }
        for key in keys
    ]
    return {"buckets": buckets, **({"after_key": buckets[-1]["key"]} if buckets else {})}


def _metric(count: Callable[[list[int]], float | None]) -> Callable[..., Document]:
    def metric(body: Document, below: Document, found: list[Hit]) -> Document:
        only(body, {"field"}, "metric")
        only(below, set(), "metric")
        return {"value": count(_numbers(found, body["field"]))}

    return metric


def _cardinality(body: Document, below: Document, found: list[Hit]) -> Document:
    only(body, {"field", "precision_threshold"}, "cardinality")
    only(below, set(), "cardinality")
    _kind(found, body["field"])
    return {"value": len({hit[2].source.get(body["field"]) for hit in found} - {None})}


def _top_hits(body: Document, below: Document, found: list[Hit]) -> Document:
    only(body, {"size", "sort"}, "top_hits")
    only(below, set(), "top_hits")
    hits = _hits(found, {"sort": body["sort"]}, body["size"])
    return {"hits": {"total": {"value": len(found), "relation": "eq"}, "hits": hits}}


_KINDS: dict[str, Callable[[Document, Document, list[Hit]], Document]] = {
    "terms": _terms,
    "composite": _composite,
    # Numbers come back as floating point.
    "sum": _metric(lambda values: float(sum(values))),
    "min": _metric(lambda values: float(min(values)) if values else None),
    "max": _metric(lambda values: float(max(values)) if values else None),
    "cardinality": _cardinality,
    "top_hits": _top_hits,
}
