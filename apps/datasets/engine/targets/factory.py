"""Opens the target of a delivery from its settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

import msgspec

from apps.datasets.engine.errors import gettext_noop
from apps.datasets.engine.targets.base import BadTarget, Target
from apps.datasets.engine.targets.calls import ClickHouseTarget, HttpClient, WebhookTarget
from apps.datasets.engine.targets.databases import open_database
from apps.datasets.engine.targets.documents import DocumentTarget
from apps.datasets.engine.targets.files import FORMATS, FileTarget, check_template
from apps.datasets.engine.targets.queues import KafkaTarget, QueueTarget
from apps.datasets.engine.targets.table import ItemLayout, RecordLayout, TableTarget
from yardkit.addresses import check_address
from yardkit.broker import Broker
from yardkit.objects import BadObjectsURL, open_objects
from yardkit.standard_webhooks import secret_problem

# PostgreSQL's limit of a name.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
# Options that an address may have. Others name files of this host, other hosts (libpq's ``host``
# wins over the address) or the host's own identity.
_URL_OPTIONS: Final[Mapping[str, Sequence[str]]] = {
    "s3": ("endpoint", "region", "path_style"),
    "postgresql": ("sslmode", "connect_timeout", "target_session_attrs"),
    "mongodb": (
        "replicaSet",
        "authSource",
        "authMechanism",
        "tls",
        "directConnection",
        "retryWrites",
    ),
}
_MONGODB_LOGINS: Final = ("SCRAM-SHA-1", "SCRAM-SHA-256", "PLAIN")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of all kinds; each kind uses its own.

    format, template: of files. table: of databases. collection: ``database.collection``. topic,
    queue: of brokers. upsert: ``id`` (default) or ``key``, what identifies a row.
    """

    format: str = "jsonl"
    template: str = ""
    folder: str = ""
    table: str = ""
    collection: str = ""
    topic: str = ""
    queue: str = ""
    upsert: str = "id"
    settings: dict[str, str] = {}
    # Of tables that existed before datasets did.
    layout: str = "items"


class Credentials(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Secrets: user and password of a server or access and secret key of S3; keys of a webhook."""

    user: str = ""
    password: str = ""
    # Several keys, separated by spaces, all sign.
    key: str = ""


class TargetContext(msgspec.Struct, frozen=True):
    """What targets use of this installation.

    ``networks``: allowed besides public addresses. ``check`` is called between the calls of one
    write, so that a long one keeps its lease; what it raises ends the write.
    """

    records_url: str
    folder: Path
    broker: Callable[[], Broker]
    networks: Sequence[str]
    check: Callable[[], None] = lambda: None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one delivery."""

    id: int
    project_id: int
    kind: str
    url: str
    options: Options
    credentials: Credentials
    key_fields: Sequence[str] = ()


_USE: Final = gettext_noop("Use: %(known)s")


def read_options(values: Mapping[str, Any]) -> Options:
    """Return options. Raises ``BadTarget``."""
    try:
        return msgspec.convert(values, Options)
    except msgspec.ValidationError as error:
        raise BadTarget("options", str(error)) from None


def read_credentials(text: str) -> Credentials:
    """Return credentials from their JSON; "" for none. Raises ``BadTarget``."""
    try:
        return msgspec.json.decode(text.encode() or b"{}", type=Credentials)
    except msgspec.DecodeError as error:
        raise BadTarget("credentials", str(error)) from None


def check(settings: Settings, context: TargetContext) -> None:
    """Raise ``BadTarget`` for settings that can never work; connects to nothing."""
    open_target(settings, context, resolve=False).close()


def open_target(settings: Settings, context: TargetContext, *, resolve: bool = True) -> Target:
    """Return the target; its first write connects.

    Raises ``BadTarget``, with ``resolve`` also for hosts that may not be reached.
    """
    maker = _KINDS.get(settings.kind)
    if maker is None:
        raise BadTarget(
            "target",
            gettext_noop("“%(kind)s” is none of %(known)s."),
            kind=settings.kind,
            known=", ".join(_KINDS),
        )
    if settings.options.upsert not in ("id", "key"):
        raise BadTarget("upsert", gettext_noop("Use id or key."))
    if settings.options.upsert == "key" and not settings.key_fields:
        text = gettext_noop("The dataset has no key. Set it on its settings page.")
        raise BadTarget("upsert", text)
    _check_url(settings)
    target = maker(settings, context)
    if resolve:
        _check_hosts(settings, context.networks)
    return target


def _bad_address(example: str) -> BadTarget:
    return BadTarget("address", _USE, known=example)


def _keys(settings: Settings) -> Sequence[str]:
    return settings.key_fields if settings.options.upsert == "key" else ()


def _folder(settings: Settings, context: TargetContext) -> Target:
    _check_files(settings.options)
    root = context.folder / f"p{settings.project_id}"
    if settings.options.folder:
        _check_name("folder", settings.options.folder)
        root /= settings.options.folder
    store = open_objects(f"file://{quote(str(root.absolute()))}")
    return FileTarget(store, settings.options.format, settings.options.template)


def _s3(settings: Settings, _context: TargetContext) -> Target:
    _check_files(settings.options)
    if not settings.url.startswith("s3://"):
        raise _bad_address("s3://bucket/prefix?endpoint=https://host&region=name")
    if not settings.credentials.user:
        # Without keys those of this host would be used, which belong to the installation.
        raise BadTarget(
            "credentials",
            gettext_noop("A bucket needs an access key (user) and a secret (password)."),
        )
    try:
        store = open_objects(
            settings.url,
            access_key=settings.credentials.user,
            secret_key=settings.credentials.password,
        )
    except BadObjectsURL as error:
        raise BadTarget("address", str(error)) from None
    return FileTarget(store, settings.options.format, settings.options.template)


def _check_files(options: Options) -> None:
    if options.format not in FORMATS:
        raise BadTarget("format", _USE, known=", ".join(FORMATS))
    if options.template:
        check_template(options.template)


def _table(settings: Settings, context: TargetContext) -> Target:
    """Return a table of the database of records, of this installation."""
    table = f"records_p{settings.project_id}_{settings.options.table}"
    _check_name("table", settings.options.table)
    if len(table) > 63:
        raise BadTarget(
            "table", gettext_noop("The name %(name)s has more than 63 letters."), name=table
        )
    if "." in settings.options.table:
        raise BadTarget("table", gettext_noop("Use a name without dots."))
    layout = RecordLayout() if settings.options.layout == "records" else None
    return TableTarget(
        open_database(context.records_url),
        table,
        layout or ItemLayout(_keys(settings)),
        context.check,
    )


def _postgresql(settings: Settings, context: TargetContext) -> Target:
    if not settings.url.startswith(("postgresql://", "postgres://")):
        raise _bad_address("postgresql://host:5432/name")
    _check_name("table", settings.options.table)
    if "." in settings.options.table:
        raise BadTarget("table", gettext_noop("Use a name without dots."))
    database = open_database(_with_login(settings))
    layout = ItemLayout(_keys(settings))
    return TableTarget(database, settings.options.table, layout, context.check)


def _mongodb(settings: Settings, _context: TargetContext) -> Target:
    if not settings.url.startswith(("mongodb://", "mongodb+srv://")):
        raise _bad_address("mongodb://host:27017/?replicaSet=name")
    login = dict(parse_qsl(urlsplit(settings.url).query)).get("authMechanism", _MONGODB_LOGINS[0])
    if login not in _MONGODB_LOGINS:
        raise BadTarget("authMechanism", _USE, known=", ".join(_MONGODB_LOGINS))
    database, dot, collection = settings.options.collection.partition(".")
    if not (database and dot and collection):
        raise BadTarget("collection", _USE, known="database.collection")
    return DocumentTarget(_with_login(settings), database, collection, _keys(settings))


def _kafka(settings: Settings, _context: TargetContext) -> Target:
    if not settings.url or "://" in settings.url:
        raise _bad_address("kafka1:9092,kafka2:9092")
    _check_name("topic", settings.options.topic)
    extra = dict(settings.options.settings)
    allowed = ("security.protocol", "sasl.mechanism", "ssl.ca.pem")
    unknown = sorted(set(extra) - set(allowed))
    if unknown:
        raise BadTarget("settings", _USE, known=", ".join(allowed))
    if settings.credentials.user:
        extra |= {
            "sasl.username": settings.credentials.user,
            "sasl.password": settings.credentials.password,
        }
    return KafkaTarget(settings.url, settings.options.topic, extra)


def _rabbitmq(settings: Settings, context: TargetContext) -> Target:
    _check_name("queue", settings.options.queue)
    if not settings.url:
        # Of the platform's own broker a project has only queues of its own.
        queue = f"items.p{settings.project_id}.{settings.options.queue}"
        return QueueTarget(queue, broker=context.broker, check=context.check)
    if not settings.url.startswith(("amqp://", "amqps://")):
        raise BadTarget(
            "address",
            gettext_noop("Use amqp://host:5672/vhost, or none for the platform's broker."),
        )
    return QueueTarget(settings.options.queue, url=_with_login(settings), check=context.check)


def _clickhouse(settings: Settings, context: TargetContext) -> Target:
    if not settings.url.startswith(("http://", "https://")):
        raise _bad_address("https://host:8443")
    _check_name("table", settings.options.table)
    headers = {"Content-Type": "application/x-ndjson"}
    if settings.credentials.user:
        headers["X-ClickHouse-User"] = settings.credentials.user
        headers["X-ClickHouse-Key"] = settings.credentials.password
    client = HttpClient(context.networks, context.check)
    return ClickHouseTarget(client, settings.url, settings.options.table, headers, settings.id)


def _webhook(settings: Settings, context: TargetContext) -> Target:
    if not settings.url.startswith(("http://", "https://")):
        raise _bad_address("https://host/path")
    secrets = settings.credentials.key.split()
    if any(secret_problem(secret) for secret in secrets):
        raise BadTarget("key", gettext_noop("Enter at least 16 characters, or whsec_ and base64."))
    client = HttpClient(context.networks, context.check)
    return WebhookTarget(client, settings.url, secrets, settings.id)


_KINDS: Final[Mapping[str, Callable[[Settings, TargetContext], Target]]] = {
    "folder": _folder,
    "s3": _s3,
    "table": _table,
    "postgresql": _postgresql,
    "mongodb": _mongodb,
    "kafka": _kafka,
    "rabbitmq": _rabbitmq,
    "clickhouse": _clickhouse,
    "webhook": _webhook,
}
KINDS: Final = tuple(_KINDS)


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise BadTarget(
            what, gettext_noop("Use letters, digits and . _ - in the name, at most 63.")
        )


def _check_url(settings: Settings) -> None:
    """Raise ``BadTarget`` for secrets in the address, and for options that reach further."""
    if settings.kind == "kafka":
        if set(settings.url) & set("@/?#"):
            raise _bad_address("kafka1:9092,kafka2:9092")
        return
    try:
        parts = urlsplit(settings.url)
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise BadTarget("address", str(error)) from None
    if "@" in parts.netloc:
        raise BadTarget("address", gettext_noop("User and password belong into the credentials."))
    if not settings.url.isprintable() or parts.fragment or (settings.url and not parts.netloc):
        raise _bad_address("scheme://host/path")
    if settings.kind == "webhook":
        return
    allowed = _URL_OPTIONS.get(settings.kind, ())
    unknown = [name for name, _value in options if name not in allowed]
    if unknown or (parts.query and not options):
        raise BadTarget(
            "address",
            gettext_noop("The option “%(name)s” is not supported. Use: %(known)s"),
            name=unknown[0][:80] if unknown else parts.query[:80],
            known=", ".join(allowed) or "–",
        )
    if len({name for name, _value in options}) < len(options):
        raise BadTarget("address", gettext_noop("An option is given twice."))


def _with_login(settings: Settings) -> str:
    """Return the address with the credentials in it."""
    parts = urlsplit(settings.url)
    if not settings.credentials.user:
        return settings.url
    login = quote(settings.credentials.user, safe="")
    if settings.credentials.password:
        login += f":{quote(settings.credentials.password, safe='')}"
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))


def _check_hosts(settings: Settings, networks: Sequence[str]) -> None:
    """Raise ``BadTarget`` if a host is private and not allowed: people of a project choose it.

    HTTP targets check when they connect.
    """
    if settings.kind not in ("postgresql", "mongodb", "kafka", "rabbitmq", "s3"):
        return
    if not settings.url:
        return
    for host in _hosts(settings):
        verdict = check_address(host, allowed_networks=networks)
        if not verdict.accepted:
            raise BadTarget(
                "address",
                gettext_noop("%(why)s; see DELIVERY_ALLOWED_NETWORKS"),
                why=verdict.reason,
            )


def _hosts(settings: Settings) -> list[str]:
    places = settings.url
    if settings.kind == "s3":
        places = dict(parse_qsl(urlsplit(places).query)).get("endpoint", "")
        if not places:
            # Amazon's.
            return []
    if settings.kind != "kafka":
        places = urlsplit(places).netloc
    hosts = [place.strip() for place in places.split(",") if place.strip()]
    if not hosts:
        raise BadTarget("address", gettext_noop("The host is missing."))
    return [
        place[1:].partition("]")[0] if place.startswith("[") else place.partition(":")[0]
        for place in hosts
    ]
