"""Dump and restore of PostgreSQL with pg_dump, pg_restore and psql."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from crawlyard.backup.errors import BackupError, RestoreRefused
from yardkit.errors import first_line

_LOADED: Final = "crawlyard: loaded"
_EMPTY: Final = """
SET lock_timeout = '10s';
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT nspname FROM pg_namespace
        WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
    LOOP EXECUTE format('DROP SCHEMA %I CASCADE', name); END LOOP;
END $$;
CREATE SCHEMA public;
"""


def dump(url: str, snapshot: str, file: Path, setting: str) -> None:
    """Dump an exported snapshot of the database in pg_dump's custom format."""
    arguments, environment = _target(url)
    done = subprocess.run(
        [
            *(_program("pg_dump", setting), "--format=custom", "--no-owner", "--no-privileges"),
            *(f"--snapshot={snapshot}", f"--file={file}", *arguments),
        ],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise BackupError(f"{setting}: {_last(done.stderr)}")


def is_empty(url: str, setting: str) -> bool:
    """Return whether the database has no tables."""
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            first = connection.execute(
                "SELECT count(*) FROM pg_tables"
                " WHERE schemaname !~ '^pg_' AND schemaname <> 'information_schema'"
            ).fetchone()
    except psycopg.Error as error:
        raise BackupError(f"{setting}: {first_line(error)}") from error
    return first is not None and first[0] == 0


class Loading:
    """A dump that is being restored in one transaction, not committed yet."""

    def __init__(self, url: str, file: Path, setting: str, *, empty_first: bool) -> None:
        self.setting = setting
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        arguments, environment = _target(url)
        self._psql = subprocess.Popen(
            [
                *(_program("psql", setting), "-X", "-q", "-v", "ON_ERROR_STOP=1"),
                # Results of a script's SELECTs are not read, and a full pipe would block it.
                *("--output=/dev/null", *arguments),
            ],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        try:
            self._load(file, empty_first=empty_first)
        except BaseException:
            self.close()
            raise

    def _load(self, file: Path, *, empty_first: bool) -> None:
        self._say("BEGIN;\n" + (_EMPTY if empty_first else ""))
        with tempfile.TemporaryFile() as problems:
            script = subprocess.Popen(
                [
                    *(_program("pg_restore", self.setting), "--no-owner", "--no-privileges"),
                    *("-f", "-", file),
                ],
                stdout=subprocess.PIPE,
                stderr=problems,
            )
            try:
                with script:
                    shutil.copyfileobj(_pipe(script.stdout), _pipe(self._psql.stdin), 1 << 20)
            except BrokenPipeError:
                raise self._failed() from None
            if script.returncode:
                problems.seek(0)
                raise BackupError(f"{self.setting}: {_last(problems.read())}")
        self._say(f"\\echo {_LOADED}\n")
        for line in _pipe(self._psql.stdout):
            if line.decode(errors="replace").strip() == _LOADED:
                return
        raise self._failed()

    def commit(self) -> None:
        """Commit the restore."""
        self._say("COMMIT;\n")
        _pipe(self._psql.stdin).close()
        if self._psql.wait():
            raise self._failed()

    def close(self) -> None:
        """Roll back an uncommitted restore."""
        if self._psql.poll() is None:
            self._psql.kill()
        self._psql.wait()
        for stream in (self._psql.stdin, self._psql.stdout, self._errors):
            try:
                _pipe(stream).close()
            except BrokenPipeError:
                continue

    def _say(self, text: str) -> None:
        try:
            stream = _pipe(self._psql.stdin)
            stream.write(text.encode())
            stream.flush()
        except BrokenPipeError:
            raise self._failed() from None

    def _failed(self) -> BackupError:
        self._psql.wait()
        self._errors.seek(0)
        return BackupError(f"{self.setting}: {_last(self._errors.read())}")


def _target(url: str) -> tuple[list[str], dict[str, str]]:
    """Return arguments and environment: arguments are visible to all users, so no password
    there.
    """
    known: dict[str, Any] = conninfo_to_dict(url)
    password = known.pop("password", None)
    environment = {**os.environ, "PGCONNECT_TIMEOUT": "5"}
    if password:
        environment["PGPASSWORD"] = str(password)
    return [f"--dbname={make_conninfo(**known)}"], environment


def _program(name: str, setting: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise RestoreRefused(
            f"{setting} is PostgreSQL, and {name} is not on PATH; install PostgreSQL's client "
            "programs (postgresql-client), as new as the server or newer"
        )
    return path


def _pipe(stream: Any) -> Any:
    if stream is None:
        raise AssertionError("no pipe was asked for")
    return stream


def _last(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    wanted = [line for line in lines if "error" in line.lower()] or lines or ["it failed"]
    return wanted[0]
