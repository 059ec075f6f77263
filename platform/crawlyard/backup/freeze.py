"""Consistent snapshot across all stores.

Every SQLite file is locked for writing, then a reader begins in each, PostgreSQL exports its
snapshots, RocksDB's follower catches up, and the locks are released. Writers wait for some
milliseconds; however long copying takes, it shows the state of that moment.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
from rocksdict import AccessType, Options, Rdict

from crawlyard.backup.errors import BackupError
from crawlyard.backup.parts import BackupPart, PartKind, sqlite_files
from yardkit.errors import first_line

# A process that holds one file may wait for another: then all locks are released and retried.
_LOCK_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 60.0
# Prefix of folders of links, and the age at which one of a killed backup is deleted.
_LINKS: Final = ".backup-"
_LINKS_SECONDS: Final = 24 * 3600.0


@dataclass(slots=True)
class Frozen:
    """Readers with the same snapshot.

    ``postgres``: names of exported snapshots. ``folders``: links to the files of a folder.
    """

    sqlite: dict[Path, sqlite3.Connection] = field(default_factory=dict)
    postgres: dict[str, str] = field(default_factory=dict)
    rocks: dict[Path, Rdict] = field(default_factory=dict)
    folders: dict[Path, Path] = field(default_factory=dict)


@contextmanager
def frozen(parts: Sequence[BackupPart], scratch: Path) -> Iterator[Frozen]:
    """Return readers of all databases among ``parts``; ``scratch`` is a temporary folder.

    Raises ``BackupError``.
    """
    _allow_many_files()
    moment = Frozen()
    with ExitStack() as stack:
        files = [file for part in parts for file in files_of(part)]
        servers = {
            part.place: stack.enter_context(_transaction(part))
            for part in parts
            if part.kind is PartKind.POSTGRES
        }
        for part in parts:
            if part.kind is PartKind.ROCKS and (part.path / "db").is_dir():
                moment.rocks[part.path] = _follower(part, scratch / part.name)
                stack.callback(moment.rocks[part.path].close)
        for file in files:
            moment.sqlite[file] = stack.enter_context(closing(_connect(file)))
        with _locked(files):
            for file, reader in moment.sqlite.items():
                _ask(file, reader, "BEGIN", "SELECT count(*) FROM sqlite_master")
            for place, cursor in servers.items():
                cursor.execute("SELECT pg_export_snapshot()")
                (moment.postgres[place],) = cursor.fetchone() or ("",)
            for follower in moment.rocks.values():
                follower.try_catch_up_with_primary()
        for part in parts:
            if part.immutable and part.path.is_dir():
                moment.folders[part.path] = stack.enter_context(_linked(part.path))
        yield moment


def files_of(part: BackupPart) -> list[Path]:
    """Return the existing SQLite files of a part."""
    if part.kind is PartKind.SQLITE:
        return [part.path] if part.path.exists() else []
    return sqlite_files(part.path) if part.kind is PartKind.SQLITE_FOLDER else []


@contextmanager
def _locked(files: Sequence[Path]) -> Iterator[None]:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with ExitStack() as connections:
        writers = [(file, connections.enter_context(closing(_connect(file)))) for file in files]
        while (busy := _lock_all(writers)) is not None:
            if time.monotonic() > deadline:
                raise BackupError(f"{busy}: others have been writing all the time; try again later")
            time.sleep(random.uniform(0.05, 0.5))  # noqa: S311 - not security-relevant
        try:
            yield
        finally:
            _unlock(writers)


def _lock_all(writers: Sequence[tuple[Path, sqlite3.Connection]]) -> Path | None:
    """Lock all files. On failure release them and return the file that is held elsewhere."""
    for file, writer in writers:
        try:
            writer.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            _unlock(writers)
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return file
            raise BackupError(f"{file}: {error}") from error
    return None


def _unlock(writers: Sequence[tuple[Path, sqlite3.Connection]]) -> None:
    for _file, writer in writers:
        if writer.in_transaction:
            writer.execute("ROLLBACK")


def _connect(file: Path) -> sqlite3.Connection:
    try:
        # Does not create a file: one that vanished meanwhile is an error.
        return sqlite3.connect(
            f"{file.absolute().as_uri()}?mode=rw",
            uri=True,
            isolation_level=None,
            timeout=_LOCK_SECONDS,
        )
    except sqlite3.Error as error:
        raise BackupError(f"{file}: {error}") from error


def _ask(file: Path, connection: sqlite3.Connection, *statements: str) -> None:
    try:
        for statement in statements:
            connection.execute(statement).fetchall()
    except sqlite3.Error as error:
        raise BackupError(f"{file}: {error}") from error


@contextmanager
def _transaction(part: BackupPart) -> Iterator[psycopg.Cursor[Any]]:
    """Open a repeatable-read transaction for as long as the context lasts."""
    try:
        with (
            psycopg.connect(part.place, connect_timeout=5, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            # It is idle while other parts are copied; a server may end idle transactions.
            cursor.execute("SET idle_in_transaction_session_timeout = 0")
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield cursor
    except psycopg.Error as error:
        raise BackupError(f"{part.setting}: {first_line(error)}") from error


def _follower(part: BackupPart, scratch: Path) -> Rdict:
    options = Options(raw_mode=True)
    # Files that the service deletes stay readable while they are open.
    options.set_max_open_files(-1)
    try:
        return Rdict(str(part.path / "db"), options, access_type=AccessType.secondary(str(scratch)))
    except Exception as error:
        raise BackupError(f"{part.setting}: {error}") from error


@contextmanager
def _linked(folder: Path) -> Iterator[Path]:
    """Return a folder of links to the files, or ``folder`` where there are no hard links.

    The objects that the database names at this moment are deleted some minutes after it names them
    no more, and copying may take longer.
    """
    for left in folder.glob(f"{_LINKS}*"):
        if left.stat().st_mtime < time.time() - _LINKS_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_LINKS, dir=folder) as made:
        try:
            _link_all(folder, Path(made))
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                raise
            yield folder
        else:
            yield Path(made)


def _link_all(folder: Path, target: Path) -> None:
    for below, folders, files in os.walk(folder):
        # Files that are being written, and links of backups.
        folders[:] = [name for name in folders if not name.startswith(".")]
        place = target / Path(below).relative_to(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name in files:
            with suppress(FileNotFoundError):
                os.link(Path(below, name), place / name, follow_symlinks=False)


def _allow_many_files() -> None:
    """Raise the descriptor limit: a SQLite file needs up to six, RocksDB one for each file."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
