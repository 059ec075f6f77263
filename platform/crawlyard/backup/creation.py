"""Creation of a backup, atomically: complete under its name, or absent."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from apps.runtime.daemon import own_version
from apps.runtime.errors import DATABASE_ERRORS
from crawlyard.backup import manifest, postgres
from crawlyard.backup.errors import BackupError, RestoreRefused
from crawlyard.backup.freeze import Frozen, frozen
from crawlyard.backup.manifest import KeyFingerprint, Manifest, PartNote
from crawlyard.backup.parts import BackupPart, PartKind, UncoveredStore
from crawlyard.rotation import keys_in_use
from yardkit.errors import first_line

_BATCH: Final = 5_000
Say = Callable[[str], None]


def make_backup(
    target: Path, parts: Sequence[BackupPart], outside: Sequence[UncoveredStore], say: Say
) -> Manifest:
    """Write a backup to the folder ``target``, which must not exist.

    Raises ``BackupError``; the folder is then absent.
    """
    if target.exists() or target.is_symlink():
        raise RestoreRefused(f"{target} is there already; name a folder that is not")
    for part in parts:
        if part.kind is PartKind.FOLDER and target.resolve().is_relative_to(part.path.resolve()):
            raise RestoreRefused(f"{target} lies inside {part.path}, which is backed up itself")
    partial = target.with_name(f".{target.name}.partial")
    with _disk_errors(target):
        # Left by a killed backup.
        shutil.rmtree(partial, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir(mode=0o700)
    try:
        with _disk_errors(target):
            done = _fill(partial, parts, outside, say)
            _sync(partial)
            partial.rename(target)
            _sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return done


@contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    """Errors of the disk in one line."""
    try:
        yield
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise BackupError(f"{target}: {os.strerror(errno.ENOSPC)}") from error
        raise BackupError(f"{target}: {error}") from error
    except OSError as error:
        raise BackupError(f"{error.filename or target}: {error.strerror or error}") from error


def _fill(
    root: Path, parts: Sequence[BackupPart], outside: Sequence[UncoveredStore], say: Say
) -> Manifest:
    files: list[manifest.BackupFile] = []
    notes: list[PartNote] = []
    scratch = root / "scratch"
    scratch.mkdir()
    try:
        migrations = [
            f"{app}.{name}" for app, name in MigrationRecorder(connection).applied_migrations()
        ]
        if not migrations:
            raise BackupError("DATABASE_URL: there is nothing in it; is this the right one?")
        keys = needed_keys()
    except DATABASE_ERRORS as error:
        raise BackupError(f"DATABASE_URL: {first_line(error)}") from error
    with frozen(parts, scratch) as moment:
        began = datetime.now(UTC)
        for part in parts:
            folder = root / part.name
            folder.mkdir()
            _copy(part, moment, folder)
            copied = sorted(path for path in folder.rglob("*") if path.is_file())
            described = [manifest.described(root, path, part.name) for path in copied]
            files += described
            notes.append(PartNote(part.name, part.kind, part.setting))
            size = sum(file.bytes for file in described) / 2**20
            say(f"{part.name:<16} {part.kind:<14} {len(described):>6} files {size:>10.1f} MiB")
    shutil.rmtree(scratch)
    made = Manifest(
        version=own_version(),
        created_at=began.isoformat(timespec="seconds"),
        migrations=sorted(migrations),
        keys=keys,
        parts=notes,
        outside={store.what: store.how for store in outside},
        files=files,
    )
    body, digest = manifest.written(made)
    (root / manifest.NAME).write_bytes(body)
    (root / manifest.SUM_NAME).write_bytes(digest)
    return made


def needed_keys() -> list[KeyFingerprint]:
    """Return fingerprints of SECRET_KEY and of the keys that seal stored secrets."""
    counted, lost = keys_in_use(settings.SECRETBOX_KEYS)
    keys = [
        KeyFingerprint("SECRETBOX_KEYS", manifest.fingerprint(key), count)
        for key, count in counted.items()
    ]
    if lost:
        keys.append(KeyFingerprint("SECRETBOX_KEYS", "unknown", lost))
    return [*keys, KeyFingerprint("SECRET_KEY", manifest.fingerprint(settings.SECRET_KEY))]


def _copy(part: BackupPart, moment: Frozen, folder: Path) -> None:
    if part.kind is PartKind.POSTGRES:
        postgres.dump(part.place, moment.postgres[part.place], folder / "dump", part.setting)
    elif part.kind is PartKind.ROCKS:
        if part.path in moment.rocks:
            _copy_rocks(moment.rocks[part.path], folder / "db")
    elif part.kind is PartKind.FOLDER:
        _copy_folder(part, moment.folders.get(part.path, part.path), folder)
    else:
        for file, reader in moment.sqlite.items():
            if file == part.path or (
                part.kind is PartKind.SQLITE_FOLDER and file.parent == part.path
            ):
                _copy_sqlite(reader, file, folder / file.name)


def _copy_sqlite(reader: sqlite3.Connection, source: Path, target: Path) -> None:
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        # The reader's transaction hides what others write meanwhile.
        reader.backup(copy)
        (verdict,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    reader.execute("ROLLBACK")
    if verdict != "ok":
        raise BackupError(f"{source} is damaged: {verdict}")


def _copy_rocks(source: Rdict, target: Path) -> None:
    """Copy key by key: only the owner of an open store knows which files are about to vanish."""
    unlogged = WriteOptions()
    # A property that the type stub declares as a method.
    unlogged.disable_wal = True  # type: ignore[method-assign, assignment]
    copy = Rdict(str(target), Options(raw_mode=True))
    try:
        batch = WriteBatch(raw_mode=True)
        for key, value in source.snapshot().items():
            batch.put(key, value)
            if batch.len() >= _BATCH:
                copy.write(batch, unlogged)
                batch = WriteBatch(raw_mode=True)
        copy.write(batch, unlogged)
        copy.flush()
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise BackupError(f"SEEDS_URL: {error}") from error
    finally:
        copy.close()
    for name in ("LOCK", "LOG"):
        (target / name).unlink(missing_ok=True)


def _copy_folder(part: BackupPart, root: Path, folder: Path) -> None:
    """Copy regular files; links are not followed, and files that vanish meanwhile are skipped."""
    for source in sorted(root.glob(part.glob)):
        if source.is_symlink() or not source.is_file():
            continue
        inside = source.relative_to(root)
        if part.immutable and inside.parts[0].startswith("."):
            # Being written, or links.
            continue
        target = folder / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copy2(source, target, follow_symlinks=False)
        except FileNotFoundError as error:
            if error.filename != str(source):
                raise
            target.unlink(missing_ok=True)


def _sync(root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_dir():
            _sync_folder(path)
        else:
            with path.open("rb") as opened:
                os.fsync(opened.fileno())
    _sync_folder(root)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
