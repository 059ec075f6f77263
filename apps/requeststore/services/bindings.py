"""Binds the active configuration of a project to physical names of shards and queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from django.conf import settings

from apps.configcenter.models import ConfigVersion
from apps.configcenter.services import ActiveVersion
from apps.requeststore.engine.biz import Biz, BizSettings, Epoch
from apps.requeststore.engine.errors import BadSetting, UnknownNode
from apps.requeststore.engine.placement import Placement, ShardPlace, queue_of
from apps.requeststore.engine.shard import Shard
from apps.requeststore.engine.validation import read_settings
from apps.requeststore.models import ShardReport
from apps.requeststore.services.kind import KIND
from apps.requeststore.texts import told

# A biz removed before these versions is visible only in the store itself.
_MOST_VERSIONS: Final = 200


@dataclass(frozen=True, slots=True)
class BoundBiz:
    """Biz of a project in one version of its configuration, with its physical names.

    ``former``: places that hold requests of it and that no epoch names any more.
    """

    project_id: int
    name: str
    settings: Biz
    version: int
    queue_name: str
    spread: Placement
    former: tuple[ShardPlace, ...] = ()
    # Removed from the active version: stored requests expire.
    retired: bool = False

    @property
    def places(self) -> tuple[ShardPlace, ...]:
        """Return every place that may hold a request of the biz."""
        return (*self.spread.places, *self.former)

    def candidates(self, number: int, ts: int | None = None) -> list[ShardPlace]:
        """Return the places where an ID may be, likeliest first: see ``Placement.candidates``."""
        return self.spread.candidates(number, ts, self.former)


def bind(active: ActiveVersion, nodes: Collection[str]) -> dict[str, BoundBiz]:
    """Return the bizzes of a version, by name.

    Raises:
        BadSetting: the version has become invalid, or two bizzes share a collection.
        UnknownNode: a biz names a node that is not in ``nodes``.
    """
    book, flaws = read_settings(active.data)
    if book is None:
        errors = [str(told(flaw)) for flaw in flaws if not flaw.warning]
        raise BadSetting("; ".join(errors[:5]))
    owners = owners_of_shards(active.project_id)
    return {name: _checked(active, name, biz, owners, nodes) for name, biz in book.bizzes.items()}


def bind_some(active: ActiveVersion, nodes: Collection[str]) -> dict[str, BoundBiz]:
    """Return the valid bizzes of a version that ``bind`` refuses."""
    book, _flaws = read_settings(active.data)
    owners = owners_of_shards(active.project_id)
    bound = dict[str, BoundBiz]()
    for name, biz in book.bizzes.items() if book is not None else ():
        with suppress(BadSetting, UnknownNode):
            bound[name] = _checked(active, name, biz, owners, nodes)
    return bound


def _checked(
    active: ActiveVersion,
    name: str,
    biz: Biz,
    owners: dict[ShardPlace, str],
    nodes: Collection[str],
) -> BoundBiz:
    bound = bound_biz(active.project_id, name, biz, active.number)
    _check_nodes(bound, nodes)
    _check_owners(bound, owners)
    return with_former(bound, owners, nodes)


def bound_biz(project_id: int, name: str, biz: Biz, version: int) -> BoundBiz:
    """Bind one biz, without a query."""
    spread = Placement(prefix=settings.REQUESTS_PREFIX, project_id=project_id, name=name, biz=biz)
    queue = queue_of(project_id, name, biz)
    return BoundBiz(project_id, name, biz, version, queue, spread)


def owners_of_shards(project_id: int) -> dict[ShardPlace, str]:
    """Return the biz of each shard that the project ever had. One query."""
    rows = ShardReport.objects.filter(project_id=project_id).order_by("pk")
    return {
        ShardPlace(node, Shard(database, collection)): biz
        for biz, node, database, collection in rows.values_list(
            "biz", "node", "database", "collection"
        )
    }


def with_former(bound: BoundBiz, owners: dict[ShardPlace, str], nodes: Collection[str]) -> BoundBiz:
    """Return the biz with its places of earlier versions."""
    current = frozenset(bound.spread.places)
    former = [
        place
        for place, biz in owners.items()
        if biz == bound.name and place not in current and place.node in nodes
    ]
    return replace(bound, former=tuple(former))


def bind_retired(
    project_id: int, current: Collection[str], nodes: Collection[str]
) -> dict[str, BoundBiz]:
    """Return bizzes that have shards and are not in ``current``, with their last settings."""
    owners = owners_of_shards(project_id)
    names = {*owners.values()}.difference(current)
    retired = dict[str, BoundBiz]()
    for name, biz, version in _last_settings(project_id, names) if names else ():
        bound = replace(bound_biz(project_id, name, biz, version), retired=True)
        if not all(place.node in nodes for place in bound.spread.places):
            # No new requests are stored; its shards are still swept and counted.
            there = sorted({place.node for place, of in owners.items() if of == name} & {*nodes})
            if not there:
                continue
            biz = msgspec.structs.replace(biz, epochs=[Epoch(nodes=there[:1])])
            bound = replace(bound_biz(project_id, name, biz, version), retired=True)
        retired[name] = with_former(bound, owners, nodes)
    return retired


def _last_settings(project_id: int, names: Collection[str]) -> Iterator[tuple[str, Biz, int]]:
    """Yield (name, settings, version) from the newest activated version that had the biz."""
    wanted = set(names)
    versions = (
        ConfigVersion.objects.filter(
            configuration__kind=KIND,
            configuration__project_id=project_id,
            activations__isnull=False,
        )
        .distinct()
        .order_by("-number")
    )
    for version in versions[:_MOST_VERSIONS]:
        if not wanted:
            return
        book = read_settings(version.data)[0] or BizSettings()
        for name in sorted(wanted.intersection(book.bizzes)):
            wanted.discard(name)
            yield name, book.bizzes[name], version.number


def _check_nodes(bound: BoundBiz, nodes: Collection[str]) -> None:
    unknown = defaultdict[str, list[str]](list)
    for number, epoch in enumerate(bound.settings.epochs):
        for node in epoch.nodes:
            if node not in nodes:
                unknown[node].append(str(number))
    if unknown:
        named = ", ".join(f"{node} (epoch {', '.join(at)})" for node, at in unknown.items())
        raise UnknownNode(
            f"biz {bound.name}: REQUESTS_NODES of this process has no node {named}; "
            f"there are {', '.join(sorted(nodes))}"
        )


def _check_owners(bound: BoundBiz, owners: dict[ShardPlace, str]) -> None:
    for place in bound.spread.places:
        owner = owners.get(place, bound.name)
        if owner != bound.name:
            raise BadSetting(
                f"biz {bound.name}: {place.node}:{place.shard.database}.{place.shard.collection} "
                f"holds requests of the biz {owner}; name another database or collection"
            )
