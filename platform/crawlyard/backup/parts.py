"""Parts of a backup, one for each store, and stores that a backup does not cover."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

SQLITE_MAGIC: Final = b"SQLite format 3\0"


class PartKind(StrEnum):
    """Method of copying and restoring a part."""

    SQLITE = "sqlite"  # one file
    SQLITE_FOLDER = "sqlite-folder"  # every SQLite file of a folder
    POSTGRES = "postgresql"
    ROCKS = "rocksdb"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class BackupPart:
    """A store. ``place`` is a path or PostgreSQL's URL; ``glob`` selects files of a folder.

    ``immutable``: files of the folder are written once, so links to them are a snapshot.
    """

    name: str
    kind: PartKind
    setting: str
    place: str
    glob: str = "**/*"
    immutable: bool = False

    @property
    def path(self) -> Path:
        """Path on this machine; not for PostgreSQL."""
        return Path(self.place)


@dataclass(frozen=True, slots=True)
class UncoveredStore:
    """A store that backups do not cover, and how to back it up."""

    what: str
    how: str


def parts() -> list[BackupPart]:
    """Return the parts of this installation, the database first."""
    stores = list(_stores())
    data = settings.DATA_DIR
    stores += [
        BackupPart("runs", PartKind.FOLDER, "CRAWLYARD_DATA", str(settings.RUNS_DIR)),
        BackupPart("record-files", PartKind.FOLDER, "RECORDS_DIR", str(settings.RECORDS_DIR)),
        # Positions of file inbounds, and the files themselves.
        BackupPart(
            "inbounds", PartKind.FOLDER, "CRAWLYARD_DATA", str(data / "routing" / "inbounds")
        ),
        BackupPart(
            "inbound-files", PartKind.FOLDER, "ROUTING_FILES_DIR", str(settings.ROUTING_FILES_DIR)
        ),
        BackupPart("spiders", PartKind.FOLDER, "SPIDERS_DIR", str(settings.SPIDERS_DIR), "**/*"),
        # State of agents. Centers send their allocations again.
        BackupPart("agents", PartKind.FOLDER, "CRAWLYARD_DATA", str(data / "agents"), "*.id"),
    ]
    stores += [
        BackupPart(f"failures-{number}", PartKind.FOLDER, "ROUTING_FAILURE_DIRS", str(folder))
        for number, folder in enumerate(settings.ROUTING_FAILURE_DIRS, 1)
    ]
    if settings.EMAIL_FILE_PATH:
        # Mail written into files where there is no mail server.
        stores.append(
            BackupPart("mails", PartKind.FOLDER, "EMAIL_URL", str(settings.EMAIL_FILE_PATH))
        )
    return stores


def _stores() -> Iterator[BackupPart]:
    """Yield every database once, even if several settings name it."""
    seen: set[tuple[str, ...]] = set()
    for part in _named_stores():
        key = _database_of(part.place) if part.kind is PartKind.POSTGRES else ("", part.place)
        if key not in seen:
            seen.add(key)
            yield part


def _named_stores() -> Iterator[BackupPart]:
    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        yield BackupPart("database", PartKind.SQLITE, "DATABASE_URL", str(database["NAME"]))
    else:
        yield BackupPart("database", PartKind.POSTGRES, "DATABASE_URL", settings.DATABASE_URL)
    if _is_postgres(settings.SEEDS_URL):
        yield BackupPart("seeds", PartKind.POSTGRES, "SEEDS_URL", settings.SEEDS_URL)
    else:
        yield BackupPart("seeds", PartKind.ROCKS, "SEEDS_URL", _path_of(settings.SEEDS_URL))
    for name, url in settings.REQUESTS_NODES.items():
        setting = "REQUESTS_URL" if name == "default" else "REQUESTS_NODES"
        if _is_postgres(url):
            yield BackupPart(f"requests-{name}", PartKind.POSTGRES, setting, url)
        elif url.startswith("sqlite:"):
            yield BackupPart(f"requests-{name}", PartKind.SQLITE_FOLDER, setting, _path_of(url))
    if _is_postgres(settings.LOGS_URL):
        yield BackupPart("logs", PartKind.POSTGRES, "LOGS_URL", settings.LOGS_URL)
    elif settings.LOGS_URL.startswith("sqlite:"):
        yield BackupPart("logs", PartKind.SQLITE_FOLDER, "LOGS_URL", _path_of(settings.LOGS_URL))
    objects = urlsplit(settings.OBJECTS_URL)
    if objects.scheme == "file":
        place = unquote(objects.path)
        yield BackupPart("objects", PartKind.FOLDER, "OBJECTS_URL", place, immutable=True)
    if settings.RECORDS_URL == settings.DATABASE_URL:
        return
    if _is_postgres(settings.RECORDS_URL):
        yield BackupPart("records", PartKind.POSTGRES, "RECORDS_URL", settings.RECORDS_URL)
    elif settings.RECORDS_URL.startswith("sqlite:"):
        yield BackupPart("records", PartKind.SQLITE, "RECORDS_URL", _path_of(settings.RECORDS_URL))


def outside() -> list[UncoveredStore]:
    """Return the stores of this installation that backups do not cover."""
    uncovered = [
        UncoveredStore(
            "SECRET_KEY and SECRETBOX_KEYS",
            "keep them apart from the backup: with both in hand, all secrets can be read",
        ),
        UncoveredStore(
            "messages in queues (BROKER_URL)",
            "the platform sends its own again; what others have not yet taken out of their queues "
            "(records, items) is kept by the broker's own means",
        ),
        UncoveredStore("images of spiders", "the registry keeps them, or Rebuild makes them anew"),
    ]
    for name, url in settings.REQUESTS_NODES.items():
        if url.startswith("mongodb"):
            uncovered.append(
                UncoveredStore(f"stored requests of the node {name} (MongoDB)", "mongodump --oplog")
            )
    if settings.LOGS_URL.startswith("http"):
        uncovered.append(UncoveredStore("log lines (LOGS_URL, Elasticsearch)", "its snapshots"))
    if settings.OBJECTS_URL.startswith("s3:"):
        uncovered.append(
            UncoveredStore(
                "items and files (OBJECTS_URL, S3)",
                "versions or replication of the bucket; the database says which objects belong",
            )
        )
    if settings.REDIS_URL:
        uncovered.append(
            UncoveredStore(
                "REDIS_URL", "what the platform keeps there is rebuilt; lists of others are not"
            )
        )
    return uncovered


def sqlite_files(folder: Path) -> list[Path]:
    """Return the SQLite databases of a folder, by name."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_file() and _is_sqlite(path))


def _is_sqlite(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


def _is_postgres(url: str) -> bool:
    return url.startswith(("postgresql:", "postgres:"))


def _path_of(url: str) -> str:
    return "/" + unquote(urlsplit(url).path).lstrip("/")


def _database_of(url: str) -> tuple[str, ...]:
    known = conninfo_to_dict(url)
    return tuple(
        str(known.get(name) or default)
        for name, default in (("host", "localhost"), ("port", "5432"), ("dbname", ""))
    )
