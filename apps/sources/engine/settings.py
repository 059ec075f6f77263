"""The settings of sources, as the configuration ``sources`` of a project keeps them.

    {"defaults": {"filter_days": 7}, "sources": {"news": {"kind": "octoparse", ...}}}

What an entry leaves out comes from ``defaults``, what those leave out from here.
Everything here is data that ``check`` (engine.checking) has accepted.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

MAX_SOURCES: Final = 500
# Limits of the rate: the vendor's maximum (seed S0.40), and ours for any other API.
MOST_REQUESTS_A_SECOND: Final = 20.0
MOST_OF_OTHERS: Final = 1000.0
OCTOPARSE_BASE: Final = "https://dataapi.octoparse.com"


class SourceKind(enum.StrEnum):
    """Protocol of a record API."""

    OCTOPARSE = "octoparse"
    JSON = "json"


class Dialect(enum.StrEnum):
    """Octoparse interface; ``auto`` is derived from the host name."""

    AUTO = "auto"
    DATA = "data"
    OPEN = "open"


class Mode(enum.StrEnum):
    """How new records are recognised: by offset, or by export marks of the API."""

    OFFSET = "offset"
    NOT_EXPORTED = "not_exported"


class ShrinkPolicy(enum.StrEnum):
    """Reaction to a source that has fewer records than before."""

    RESET = "reset"
    REPORT = "report"


class BadDatePolicy(enum.StrEnum):
    """Treatment of records whose date is unreadable or in the future."""

    KEEP = "keep"
    REFUSE = "refuse"


class Auth(enum.StrEnum):
    """Authentication scheme of a JSON API; the secrets are in the credentials."""

    NONE = "none"
    BASIC = "basic"
    BEARER = "bearer"
    HEADERS = "headers"


class JsonApi(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Structure of a JSON API's responses.

    ``records`` and ``total`` are JMESPath expressions for the list of records and the number of all
    records; both are evaluated on every response. ``parameters`` are sent with each request in
    addition to offset and size.
    """

    total: str = "total"
    records: str = "records"
    offset_parameter: str = "offset"
    size_parameter: str = "size"
    parameters: dict[str, str] = {}
    auth: Auth = Auth.NONE


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One record API, and what is harvested of it.

    ``base_url``: of Octoparse the part before ``/token``, of a JSON API the whole address.
    ``credentials``: the name of a ``Credential`` of the project. ``date_field`` and ``id_field``
    are JMESPath expressions on a record; without ``date_field`` nothing is too old.
    ``date_format``: as ``strptime`` reads it, "" knows the usual ones. ``time_zone``: of dates
    that name none, and of ``cron``. ``rate_limit``: requests a second.
    """

    kind: SourceKind = SourceKind.OCTOPARSE
    description: str = ""
    base_url: str = ""
    task_id: str = ""
    credentials: str = ""
    json: JsonApi = JsonApi()
    mode: Mode = Mode.OFFSET
    dialect: Dialect = Dialect.AUTO
    enabled: bool = True
    auto_start: bool = True
    cron: str = ""
    time_zone: str = "UTC"
    batch_size: int = 100
    date_field: str = ""
    date_format: str = ""
    filter_days: float = 7
    future_seconds: float = 24 * 3600
    bad_dates: BadDatePolicy = BadDatePolicy.KEEP
    max_expired_batches: int = 3
    id_field: str = ""
    shrunk: ShrinkPolicy = ShrinkPolicy.RESET
    queue: str = "job_data"
    ttl_seconds: float = 7 * 24 * 3600
    rate_limit: float = 1
    timeout_seconds: float = 30
    retries: int = 5

    @property
    def url(self) -> str:
        """Base URL without a trailing slash."""
        base = self.base_url or (OCTOPARSE_BASE if self.kind is SourceKind.OCTOPARSE else "")
        return base.rstrip("/")

    @property
    def speaks_open(self) -> bool:
        """Whether to use Octoparse's newer interface (openapi.*)."""
        if self.dialect is not Dialect.AUTO:
            return self.dialect is Dialect.OPEN
        return (urlsplit(self.url).hostname or "").startswith("openapi.")

    @property
    def content(self) -> str:
        """Identity of the records: if it changes, progress so far is void."""
        of = [self.kind, self.task_id, self.mode]
        if self.kind is SourceKind.JSON:
            of += [self.url, self.json.records, json.dumps(self.json.parameters, sort_keys=True)]
        return hashlib.blake2b("\0".join(of).encode(), digest_size=8).hexdigest()


class NamedBroker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Broker in the seed's own configuration: shown, not used (see BROKER_URL)."""

    host: str = ""
    port: int = 5672
    username: str = ""


class SourceCatalog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parsed data of a version."""

    defaults: Source = Source()
    sources: dict[str, Source] = {}
    broker: NamedBroker | None = None


def merged(defaults: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the defaults into an entry; ``json`` is merged key by key."""
    both = {**defaults, **entry}
    inner = [mapping.get("json") for mapping in (defaults, entry)]
    if all(isinstance(mapping, dict) for mapping in inner):
        both["json"] = {**inner[0], **inner[1]}  # type: ignore[dict-item]  # both are
    return both


def catalog_of(data: Mapping[str, Any]) -> SourceCatalog:
    """Parse checked data. Raises ``msgspec.ValidationError`` for other data."""
    defaults = data.get("defaults") or {}
    broker = data.get("broker")
    return SourceCatalog(
        defaults=msgspec.convert(defaults, Source),
        sources={
            name: msgspec.convert(merged(defaults, entry or {}), Source)
            for name, entry in (data.get("sources") or {}).items()
        },
        broker=None if broker is None else msgspec.convert(broker, NamedBroker),
    )
