"""Import of resources from a file, and export without their secrets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from django.db import transaction

from apps.access.models import User
from apps.access.services import record
from apps.seeds.engine.resource_files import (
    FileFormat,
    NewResource,
    UnreadableFile,
    read_resources,
    write_csv,
)
from apps.seeds.errors import UnreadableResources
from apps.seeds.models import Resource, ResourcePool

_BATCH: Final = 500
# Columns of an export, without the secret.
COLUMNS: Final = (
    "name",
    "state",
    "score",
    "leased_by",
    "leased_until",
    "available_at",
    "last_used_at",
    "used_count",
    "succeeded_count",
    "failed_count",
    "expired_count",
    "late_count",
    "failures_in_a_row",
    "banned_at",
    "reason",
)


@dataclass(frozen=True, slots=True)
class ResourceImport:
    """Number of resources that were new, got another secret, and were unchanged."""

    added: int
    changed: int
    unchanged: int

    def as_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        return {"added": self.added, "changed": self.changed, "unchanged": self.unchanged}


def import_resources(
    *, pool: ResourcePool, raw: bytes | str, kind: FileFormat, actor: User | None
) -> ResourceImport:
    """Add missing resources and update the secrets of existing ones; all or nothing.

    Scores, states and leases stay; resources missing from the file stay, too. Raises
    ``UnreadableResources`` with every problem and its line, and no secret.
    """
    try:
        resources = read_resources(raw, kind)
    except UnreadableFile as error:
        raise UnreadableResources(fields={"text": error.problems}) from None
    with transaction.atomic():
        done = _write(pool, resources)
        record(actor=actor, action="seeds.import_resources", obj=pool, after=done.as_dict())
    return done


def _write(pool: ResourcePool, resources: list[NewResource]) -> ResourceImport:
    known: dict[str, Resource] = {}
    for start in range(0, len(resources), _BATCH):
        names = [resource.name for resource in resources[start : start + _BATCH]]
        rows = Resource.objects.select_for_update().filter(pool=pool, name__in=names)
        known |= {row.name: row for row in rows.only("name", "secret").order_by("pk")}
    added = [resource for resource in resources if resource.name not in known]
    changed = []
    for resource in resources:
        row = known.get(resource.name)
        if row is not None and row.secret != resource.secret:
            row.secret = resource.secret
            changed.append(row)
    Resource.objects.bulk_create(
        (Resource(pool=pool, name=resource.name, secret=resource.secret) for resource in added),
        batch_size=_BATCH,
    )
    Resource.objects.bulk_update(changed, ["secret"], batch_size=_BATCH)
    return ResourceImport(len(added), len(changed), len(resources) - len(added) - len(changed))


def export_resources(pool: ResourcePool) -> Iterator[str]:
    """Yield a CSV file of all resources, sorted by name."""
    rows: Any = Resource.objects.filter(pool=pool).order_by("name").values_list(*COLUMNS)
    return write_csv(
        COLUMNS, ([_text(value) for value in row] for row in rows.iterator(chunk_size=1000))
    )


def _text(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value
