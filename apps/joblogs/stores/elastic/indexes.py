"""Names, mappings and lifecycle of the indexes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from elasticsearch import BadRequestError, Elasticsearch
from elasticsearch.dsl import (
    Boolean,
    ComposableIndexTemplate,
    Date,
    Integer,
    Keyword,
    Long,
    Mapping,
    Object,
    Text,
    Wildcard,
)
from elasticsearch.dsl.field import Field

from apps.joblogs.stores.elastic.address import ElasticAddress
from apps.joblogs.stores.elastic.connection import ElasticConnection

# Explicit: by default an index that was not searched for a while is not refreshed.
REFRESH: Final = "1s"
# Priority above the templates that come with the server.
PRIORITY: Final = 300
# Days of this age are no longer written to.
WARM_DAYS: Final = 2

LINE_FIELDS: Final[dict[str, Field]] = {
    # For people and other tools; our code sorts and compares by microseconds.
    "@timestamp": Date(),
    "at": Long(),
    "project": Long(),
    "job": Long(),
    "stream": Keyword(),
    "boot": Keyword(),
    "boot_number": Integer(),
    "seq": Long(),
    "level": Keyword(),
    "source": Keyword(),
    "text": Wildcard(),
    # Words of ``engine.words`` separated by spaces, so that all stores find the same lines.
    "words": Text(analyzer="whitespace", norms=False),
    "bytes": Integer(index=False),
    "fingerprint": Keyword(),
    # project.job.fingerprint of an error.
    "kind": Keyword(),
}
# Not returned by searches: derived from the other fields.
UNSEEN: Final = ("words", "at", "kind")
LEDGER_FIELDS: Final[dict[str, Field]] = {
    "stream": Keyword(),
    "project": Long(),
    "job": Long(),
    "lines": Long(),
    "bytes": Long(),
    "first_at": Long(),
    "last_at": Long(),
    "updated_at": Long(),
    "uncertain": Boolean(),
    "days": Keyword(),
    "pending_days": Keyword(),
    # Read as a whole, never searched.
    "executions": Object(enabled=False),
}


@dataclass(frozen=True, slots=True)
class IndexNames:
    """Names of indexes that begin with ``prefix``."""

    prefix: str

    @property
    def lines(self) -> str:
        """Return the pattern that matches the indexes of all days."""
        return f"{self.prefix}-lines-*"

    @property
    def records(self) -> str:
        """Return the name of the index of stream records."""
        return f"{self.prefix}-streams"

    def day(self, day: str) -> str:
        """Return the index of a day such as ``2026.11.22``."""
        return f"{self.prefix}-lines-{day}"

    def day_of(self, index: str) -> str:
        """Return the day of an index."""
        return index.removeprefix(f"{self.prefix}-lines-")


def set_up(connection: ElasticConnection, names: IndexNames) -> None:
    """Create policy, templates and the index of stream records; idempotent, also concurrently."""
    address = connection.address
    connection.ask(
        lambda client: client.ilm.put_lifecycle(name=names.prefix, policy=policy(address))
    )
    lines = _template(f"{names.prefix}-lines", names.lines, address)
    lines.mapping(_mapping(LINE_FIELDS, _source={"excludes": list(UNSEEN)}))
    lines.settings(**{"index.lifecycle.name": names.prefix})
    records = _template(names.records, names.records, address)
    records.mapping(_mapping(LEDGER_FIELDS))
    connection.ask(lambda client: lines.save(using=client))
    connection.ask(lambda client: records.save(using=client))
    _create(connection, names.records)


def policy(address: ElasticAddress) -> dict[str, Any]:
    """Return the lifecycle policy: recover recent days first, delete days older than
    ``keep_days``.
    """
    phases: dict[str, Any] = {
        "hot": {"min_age": "0ms", "actions": {"set_priority": {"priority": 100}}}
    }
    # The server rejects a policy that deletes before its earlier phases have begun.
    if not address.keep_days or address.keep_days > WARM_DAYS:
        warm = {"set_priority": {"priority": 50}}
        phases["warm"] = {"min_age": f"{WARM_DAYS}d", "actions": warm}
    if address.keep_days:
        phases["delete"] = {"min_age": f"{address.keep_days}d", "actions": {"delete": {}}}
    return {"phases": phases}


def _template(name: str, pattern: str, address: ElasticAddress) -> ComposableIndexTemplate:
    template = ComposableIndexTemplate(name, pattern, priority=PRIORITY)
    settings: dict[str, Any] = {"number_of_shards": address.shards, "refresh_interval": REFRESH}
    if address.replicas is not None:
        settings["number_of_replicas"] = address.replicas
    template.settings(**settings)
    return template


def _mapping(fields: dict[str, Field], **meta: Any) -> Mapping:
    mapping = Mapping()
    mapping.meta("dynamic", "strict")
    for name, kind in meta.items():
        mapping.meta(name, **kind)
    for name, field in fields.items():
        mapping.field(name, field)
    return mapping


def _create(connection: ElasticConnection, name: str) -> None:
    """Create an index unless it exists."""

    def call(client: Elasticsearch) -> Any:
        try:
            return client.indices.create(index=name)
        except BadRequestError as error:
            if error.error != "resource_already_exists_exception":
                raise
            return client.indices.exists(index=name)

    connection.ask(call)
