"""The settings of sources, as the configuration ``sources`` of a project keeps them.

    {"defaults": {"filter_days": 7}, "sources": {"news": {"kind": "octoparse", ...}}}

What an entry leaves out comes from ``defaults``, what those leave out from here (seed S0.28,
S0.29). Everything here is data that ``check`` (engine.checking) has accepted.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

NAME: Final = r"[a-z][a-z0-9_-]{0,63}"
MAX_SOURCES: Final = 500
# What the vendor allows at most (seed S0.40), and what any other API may be asked.
MOST_REQUESTS_A_SECOND: Final = 20.0
MOST_OF_OTHERS: Final = 1000.0
OCTOPARSE_BASE: Final = "https://dataapi.octoparse.com"


class SourceKind(enum.StrEnum):
    """Which protocol a record API speaks."""

    OCTOPARSE = "octoparse"
    JSON = "json"


class Dialect(enum.StrEnum):
    """Which of Octoparse's two interfaces is spoken; ``auto`` goes by the host's name."""

    AUTO = "auto"
    DATA = "data"
    OPEN = "open"


class Mode(enum.StrEnum):
    """How a harvest knows what is new: by offsets, or by the marks of the API itself."""

    OFFSET = "offset"
    NOT_EXPORTED = "not_exported"


class Shrunk(enum.StrEnum):
    """What is done when a source has fewer records than before (seed S0.16)."""

    RESET = "reset"
    REPORT = "report"


class BadDates(enum.StrEnum):
    """What is done with records whose date cannot be read or is in the future."""

    KEEP = "keep"
    REFUSE = "refuse"


class Auth(enum.StrEnum):
    """How a JSON API authenticates its callers; the secrets are those of the credentials."""

    NONE = "none"
    BASIC = "basic"
    BEARER = "bearer"
    HEADERS = "headers"


class JsonApi(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a JSON API keeps things. ``total`` and ``records`` are JMESPath expressions.

    ``records`` gives the list of an answer, ``total`` how many records there are in all; both are
    looked for in every answer. ``parameters`` are sent with each request beside offset and size.
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
    bad_dates: BadDates = BadDates.KEEP
    max_expired_batches: int = 3
    id_field: str = ""
    shrunk: Shrunk = Shrunk.RESET
    queue: str = "job_data"
    ttl_seconds: float = 7 * 24 * 3600
    rate_limit: float = 1
    timeout_seconds: float = 30
    retries: int = 5

    @property
    def url(self) -> str:
        """The address that is asked, without a slash at its end."""
        base = self.base_url or (OCTOPARSE_BASE if self.kind is SourceKind.OCTOPARSE else "")
        return base.rstrip("/")

    @property
    def speaks_open(self) -> bool:
        """Whether Octoparse's newer interface is meant (openapi.*, seed S0.37)."""
        if self.dialect is not Dialect.AUTO:
            return self.dialect is Dialect.OPEN
        return (urlsplit(self.url).hostname or "").startswith("openapi.")

    @property
    def content(self) -> str:
        """Says which records these are: another one makes what was harvested so far history."""
        of = [self.kind, self.task_id, self.mode]
        if self.kind is SourceKind.JSON:
            of += [self.url, self.json.records, json.dumps(self.json.parameters, sort_keys=True)]
        return hashlib.blake2b("\0".join(of).encode(), digest_size=8).hexdigest()


class NamedBroker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The broker that the seed's own configuration names: shown, not used (see BROKER_URL)."""

    host: str = ""
    port: int = 5672
    username: str = ""


class SourceBook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data of a version, understood."""

    defaults: Source = Source()
    sources: dict[str, Source] = {}
    broker: NamedBroker | None = None


def merged(defaults: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry with what the defaults add; ``json`` is merged key by key."""
    both = {**defaults, **entry}
    inner = [each.get("json") for each in (defaults, entry)]
    if all(isinstance(each, dict) for each in inner):
        both["json"] = {**inner[0], **inner[1]}  # type: ignore[dict-item]  # both are
    return both


def book_of(data: Mapping[str, Any]) -> SourceBook:
    """The settings of checked data. Raises ``msgspec.ValidationError`` for other data."""
    defaults = data.get("defaults") or {}
    broker = data.get("broker")
    return SourceBook(
        defaults=msgspec.convert(defaults, Source),
        sources={
            name: msgspec.convert(merged(defaults, entry or {}), Source)
            for name, entry in (data.get("sources") or {}).items()
        },
        broker=None if broker is None else msgspec.convert(broker, NamedBroker),
    )
