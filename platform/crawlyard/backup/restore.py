"""Restore of a backup: everything, or nothing."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader

from apps.runtime.checks import restore_mark
from apps.runtime.daemon import own_version
from apps.runtime.queries import live_daemons
from apps.seeds.engine.errors import SeedStoreUnavailable, StoreInUse
from apps.seeds.stores.factory import open_store
from crawlyard.backup import manifest, postgres
from crawlyard.backup.errors import BackupError, RestoreRefused
from crawlyard.backup.freeze import files_of
from crawlyard.backup.manifest import Manifest
from crawlyard.backup.parts import BackupPart, PartKind, sqlite_files

_SIDES: Final = ("", "-wal", "-shm")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Move:
    """Replacement of ``target`` by the copy ``staged``; the present content moves ``aside``."""

    staged: Path | None
    target: Path
    aside: Path


def restore(
    root: Path,
    parts: Sequence[BackupPart],
    say: Say,
    *,
    force: bool = False,
    other_keys: bool = False,
) -> Manifest:
    """Restore the backup at ``root`` into the configured stores.

    ``force``: replace existing content, which is moved aside (in PostgreSQL: dropped).
    ``other_keys``: proceed although this installation cannot open the secrets.

    Raises ``BackupError``; the stores are then unchanged, unless one of several servers failed
    during its commit, which the error says.
    """
    known = manifest.read(root)
    _refuse_newer(known)
    manifest.verify(root, known)
    say(f"{root}: {len(known.files)} files, {known.total_bytes / 2**20:.1f} MiB, all as written")
    if not other_keys:
        _refuse_other_keys(known)
    matched = _matched(known, parts)
    _refuse_running(matched, root)
    taken = [part for part in matched if not _is_empty(part)]
    if taken and not force:
        listed = ", ".join(part.name for part in taken)
        raise RestoreRefused(
            f"there is something already in: {listed}; restore into an empty installation, or say "
            "--force: files are then moved aside, databases of PostgreSQL emptied"
        )
    with ExitStack() as stack:
        moves, loadings = _prepared(root, known, matched, taken, stack)
        _carry_out(moves, loadings)
    for move in moves:
        if move.aside.exists():
            say(f"what was there is now {move.aside}")
    return known


def _prepared(
    root: Path,
    known: Manifest,
    parts: Sequence[BackupPart],
    taken: Sequence[BackupPart],
    stack: ExitStack,
) -> tuple[list[Move], list[postgres.Loading]]:
    """Do everything that takes time and may fail: copies beside targets, open transactions."""
    suffix = datetime.now(UTC).strftime(".before-restore-%Y%m%dT%H%M%SZ")
    moves: list[Move] = []
    loadings: list[postgres.Loading] = []
    try:
        for part in parts:
            if part.kind is PartKind.POSTGRES:
                file = root / part.name / "dump"
                loading = postgres.Loading(
                    part.place, file, part.setting, empty_first=part in taken
                )
                loadings.append(loading)
                stack.callback(loading.close)
            else:
                _stage(root, known, part, suffix, moves)
    except OSError as error:
        _unstage(moves)
        where = error.filename2 or error.filename
        raise BackupError(f"{where}: {error.strerror}; nothing was changed") from error
    except BaseException:
        _unstage(moves)
        raise
    return moves, loadings


def _refuse_newer(known: Manifest) -> None:
    ours = own_version()
    if _numbers(known.version) > _numbers(ours):
        raise RestoreRefused(
            f"the backup was made by version {known.version}, this is {ours}; install "
            f"{known.version} or newer and restore with that"
        )
    disk = {f"{app}.{name}" for app, name in MigrationLoader(None).disk_migrations}
    foreign = sorted(set(known.migrations) - disk)
    if foreign:
        raise RestoreRefused(
            f"the backup was made by a newer version: this one has no migration {foreign[0]}"
            f" ({len(foreign)} are missing); restore with the version that made it"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _refuse_other_keys(known: Manifest) -> None:
    ours = {manifest.fingerprint(key) for key in settings.SECRETBOX_KEYS}
    missing = [
        key
        for key in known.keys
        if key.setting == "SECRETBOX_KEYS"
        and key.fingerprint not in ours
        and key.fingerprint != "unknown"
    ]
    if missing:
        listed = ", ".join(f"{key.fingerprint} ({key.secrets} secrets)" for key in missing)
        raise RestoreRefused(
            f"SECRETBOX_KEYS lacks the keys with these fingerprints: {listed}; set them first (or "
            "put the old file secretbox_key into the data folder), or say --other-keys: those "
            "secrets must then be typed in again"
        )


def _matched(known: Manifest, parts: Sequence[BackupPart]) -> list[BackupPart]:
    """Return the parts of this installation that the backup contains."""
    ours = {part.name: part for part in parts}
    matched = []
    for note in known.parts:
        part = ours.get(note.name)
        files = known.files_of(note.name)
        if part is None or part.kind != note.kind:
            if not files:
                continue
            local_state = f"is {part.kind} here" if part else "is nothing here"
            raise RestoreRefused(
                f"{note.name} is {note.kind} in the backup and {local_state}; give {note.setting} "
                "the kind of address that it had"
            )
        matched.append(part)
    return matched


def _refuse_running(parts: Sequence[BackupPart], root: Path) -> None:
    """Refuse to restore while a process uses a store that would be replaced."""
    if not all(_is_empty(part) for part in parts if part.name == "database"):
        _refuse_alive()
    for part in parts:
        for file in files_of(part):
            _refuse_open(file)
        if part.kind is PartKind.ROCKS and (part.path / "db").is_dir():
            try:
                # A damaged store may be replaced.
                with suppress(SeedStoreUnavailable):
                    open_store(settings.SEEDS_URL).close()
            except StoreInUse as error:
                raise RestoreRefused(str(error)) from None
        if part.path.exists() and part.kind is not PartKind.POSTGRES:
            inside = root.resolve()
            if part.path.resolve() in (inside, *inside.parents):
                raise RestoreRefused(
                    f"the backup lies inside {part.path}, which it replaces; move it"
                )


def _refuse_alive() -> None:
    # Missing tables: no process of the product has ever started.
    with suppress(DatabaseError), closing(connection):
        alive = [f"{daemon.kind} {daemon.name}" for daemon in live_daemons()]
        if alive:
            raise RestoreRefused(
                f"these processes are alive: {', '.join(alive)}; stop them first, killed ones "
                "count as alive for 15 s"
            )


def _refuse_open(file: Path) -> None:
    """Refuse an open file: SQLite leaves WAL mode only when no other process has it open."""
    try:
        with closing(sqlite3.connect(file, timeout=1.0, isolation_level=None)) as opened:
            opened.execute("PRAGMA journal_mode=DELETE").fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise RestoreRefused(
                f"{file} is in use; stop every process of the installation"
            ) from None
    except sqlite3.DatabaseError:
        # A damaged store may be replaced.
        return


def _is_empty(part: BackupPart) -> bool:
    if part.kind is PartKind.POSTGRES:
        return postgres.is_empty(part.place, part.setting)
    if part.kind is PartKind.SQLITE:
        return not part.path.exists() or _has_no_table(part.path)
    if part.kind is PartKind.SQLITE_FOLDER:
        return all(_has_no_table(file) for file in sqlite_files(part.path))
    if part.kind is PartKind.ROCKS:
        return not (part.path / "db").is_dir()
    return not any(path.is_file() for path in part.path.glob(part.glob))


def _has_no_table(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            table = opened.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        return False
    return bool(table[0] == 0)


def _stage(root: Path, known: Manifest, part: BackupPart, suffix: str, moves: list[Move]) -> None:
    """Copy a part beside its target, on the same file system."""
    source = root / part.name
    if part.kind in (PartKind.SQLITE, PartKind.SQLITE_FOLDER):
        folder = part.path.parent if part.kind is PartKind.SQLITE else part.path
        names = {Path(file.path).name for file in known.files_of(part.name)}
        there = {part.path.name} if part.kind is PartKind.SQLITE else set()
        there |= {file.name for file in sqlite_files(folder)} if not there else set()
        for name in sorted(names | there):
            target = folder / (part.path.name if part.kind is PartKind.SQLITE else name)
            staged = _copied(source / name, target, moves) if name in names else None
            for side in _SIDES:
                beside = target.with_name(target.name + side)
                aside = beside.with_name(beside.name + suffix)
                moves.append(Move(None if side else staged, beside, aside))
    elif part.kind is PartKind.FOLDER and part.glob != "**/*":
        # BackupPart of a folder: other content of the folder stays.
        for file in known.files_of(part.name):
            target = part.path / Path(file.path).relative_to(part.name)
            staged = _copied(root / file.path, target, moves)
            moves.append(Move(staged, target, target.with_name(target.name + suffix)))
    elif known.files_of(part.name) or not _is_empty(part):
        staged = _copied(source, part.path, moves)
        moves.append(Move(staged, part.path, part.path.with_name(part.path.name + suffix)))


def _copied(source: Path, target: Path, moves: list[Move]) -> Path:
    staged = target.with_name(f".{target.name}.restoring")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove(staged)
    # Recorded before the copy is complete, so that it is removed when copying fails.
    moves.append(Move(staged, staged, staged))
    if source.is_dir():
        shutil.copytree(source, staged)
    else:
        shutil.copy2(source, staged)
    moves.pop()
    for path in [staged, *staged.rglob("*")] if staged.is_dir() else [staged]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return staged


def _unstage(moves: Sequence[Move]) -> None:
    for move in moves:
        if move.staged is not None:
            _remove(move.staged)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _carry_out(moves: Sequence[Move], loadings: Sequence[postgres.Loading]) -> None:
    """Rename the copies and commit the prepared transactions.

    A marker file stands meanwhile: no process starts on stores that a killed restore left.
    """
    mark = restore_mark()
    done: list[Move] = []
    committed: list[str] = []
    try:
        mark.write_text("a restore is under way, or was killed\n", encoding="utf-8")
        for move in moves:
            if move.target.exists():
                move.target.rename(move.aside)
            done.append(move)
            if move.staged is not None:
                move.staged.rename(move.target)
        for loading in loadings:
            loading.commit()
            committed.append(loading.setting)
    except (OSError, BackupError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        if committed:
            # Commits cannot be undone: the marker stays, since the stores differ in time.
            raise BackupError(
                f"{reason}; {', '.join(committed)} and files are restored, the rest is not, so no "
                "process starts: mend it and restore again with --force"
            ) from error
        _undo(done)
        _unstage(moves)
        mark.unlink(missing_ok=True)
        raise BackupError(f"{reason}; everything is as it was") from error
    mark.unlink()


def _undo(done: Sequence[Move]) -> None:
    for move in reversed(done):
        if move.staged is not None and move.target.exists():
            move.target.rename(move.staged)
        if move.aside.exists():
            move.aside.rename(move.target)
