"""Objects as files of a folder, ``file:///path``."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar
from uuid import uuid4

from yardkit.objects.base import (
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectStoreUnavailable,
    check_range,
    checked,
    checked_prefix,
)
from yardkit.objects.signing import AddressSigner

T = TypeVar("T")

_CHUNK_BYTES: Final = 1024 * 1024
# Folder of files that are being written; no key begins with a dot.
INCOMPLETE: Final = ".incomplete"
# Age at which a file that a killed process has left there is deleted.
INCOMPLETE_SECONDS: Final = 24 * 3600.0
# Times that a folder is made again, since ``delete`` removes empty ones.
_ATTEMPTS: Final = 100


class FolderStore:
    """Object store in a folder. An object appears whole, by a rename, after it was synced."""

    def __init__(self, folder: Path, signer: AddressSigner | None = None) -> None:
        self._folder = folder.absolute()
        self._signer = signer
        self._lock = threading.Lock()
        self._swept = False

    def put(self, key: str, content: bytes, *, create: bool = False) -> None:
        self._write(key, [content], create=create)

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> int:
        return self._write(key, chunks)

    def get(self, key: str) -> bytes:
        with self._open(key) as file, self._errors(key):
            return file.read()

    def stream(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        check_range(start, length)
        return self._chunks(key, self._open(key), start, length)

    def head(self, key: str) -> ObjectInfo:
        with self._open(key) as file, self._errors(key):
            return _info(key, os.fstat(file.fileno()))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        root = self._folder / checked_prefix(prefix)
        with self._errors(prefix):
            for folder, folders, files in os.walk(root, onerror=_raise_unless_missing):
                folders[:] = [name for name in folders if not name.startswith(".")]
                for name in files:
                    path = Path(folder, name)
                    # Others may delete at the same time.
                    with contextlib.suppress(FileNotFoundError):
                        if not name.startswith("."):
                            yield _info(path.relative_to(self._folder).as_posix(), path.stat())

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            with self._errors(key), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
            # Empty folders would stay forever; one that is in use is not empty.
            with contextlib.suppress(OSError):
                for parent in path.parents:
                    if parent == self._folder:
                        break
                    parent.rmdir()

    def sign(self, method: str, key: str, seconds: int) -> str:
        if self._signer is None:
            raise ObjectStoreUnavailable(
                "no object server serves the folder; start run_objects and set OBJECTS_PUBLIC_URL"
            )
        return self._signer.sign(method, key, int(time.time()) + seconds)

    def location(self, key: str) -> str:
        # Not quoted: neither pyiceberg nor Spark decodes such an address.
        return f"file://{self._path(key)}"

    def local_path(self, key: str) -> Path | None:
        return self._path(key)

    def arrow(self) -> tuple[Any, str]:
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem(), str(self._folder)

    def iceberg_properties(self) -> Mapping[str, str]:
        return {}

    def _path(self, key: str) -> Path:
        return self._folder / checked(key)

    def _open(self, key: str) -> BinaryIO:
        with self._errors(key):
            try:
                return self._path(key).open("rb")
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
                raise ObjectMissing(f"{key}: no such object in {self._folder}") from error

    def _chunks(self, key: str, file: BinaryIO, start: int, length: int | None) -> Iterator[bytes]:
        with file:
            with self._errors(key):
                file.seek(start)
            while length is None or length > 0:
                with self._errors(key):
                    chunk = file.read(min(_CHUNK_BYTES, length or _CHUNK_BYTES))
                if not chunk:
                    return
                if length is not None:
                    length -= len(chunk)
                yield chunk

    def incoming(self, key: str) -> IncomingObject:
        """Begin to write an object piece by piece."""
        self._path(key)
        return IncomingObject(self, key)

    def _write(self, key: str, chunks: Iterable[bytes], *, create: bool = False) -> int:
        with contextlib.closing(self.incoming(key)) as incoming:
            # Errors of the caller's iterator are not the store's.
            for chunk in chunks:
                incoming.write(chunk)
            incoming.finish(create=create)
            return incoming.size

    def _place(self, written: Path, key: str, *, create: bool, durable: bool) -> None:
        path = self._path(key)
        # Unlike a rename, a link does not replace what is there.
        place = os.link if create else os.replace

        def placed() -> None:
            try:
                place(written, path)
            except FileExistsError as error:
                raise ObjectExists(f"{key}: exists already in {self._folder}") from error
            if durable:
                _sync(path.parent)

        _in_folder(path.parent, placed)

    def _sweep_once(self) -> None:
        """Delete what killed processes have left, once for each store."""
        with self._lock:
            if self._swept:
                return
            self._swept = True
        before = time.time() - INCOMPLETE_SECONDS
        with contextlib.suppress(FileNotFoundError):
            for left in os.scandir(self._folder / INCOMPLETE):
                if left.stat().st_mtime < before:
                    os.unlink(left)

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = error.strerror or str(error)
            raise ObjectStoreUnavailable(f"{self._folder}: {key}: {text}") from error


class IncomingObject:
    """Object that is being written: it appears whole with ``finish``.

    ``close`` discards what is not finished. Every call may raise ``ObjectStoreUnavailable``.
    """

    def __init__(self, store: FolderStore, key: str) -> None:
        self.size = 0
        self._store = store
        self._key = key
        self._written = store._folder / INCOMPLETE / uuid4().hex
        with store._errors(key):
            store._sweep_once()
            self._file = _in_folder(self._written.parent, lambda: self._written.open("xb"))

    def write(self, chunk: bytes) -> None:
        """Append a piece."""
        with self._store._errors(self._key):
            self.size += self._file.write(chunk)

    def finish(self, *, create: bool = False, durable: bool = True) -> None:
        """Make it visible. Raises ``ObjectExists`` with ``create`` if the key is taken.

        ``durable``: only when it would survive a loss of power.
        """
        with self._store._errors(self._key):
            self._file.flush()
            if durable:
                os.fsync(self._file.fileno())
            self._file.close()
            self._store._place(self._written, self._key, create=create, durable=durable)

    def close(self) -> None:
        """Discard what is not finished."""
        # After an error, closing tries once more to write what is buffered.
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._written.unlink(missing_ok=True)


def _info(key: str, stat: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC))


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _in_folder(folder: Path, action: Callable[[], T]) -> T:
    """Return the result of ``action``, which needs ``folder``; make the folder if it is missing."""
    for _ in range(_ATTEMPTS):
        try:
            return action()
        except FileNotFoundError:
            _make(folder)
    return action()


def _make(folder: Path) -> None:
    """Make a folder and those above it, durably: a synced file in a lost folder is lost."""
    if folder.is_dir():
        return
    _make(folder.parent)
    # Others may make it, or remove it again, at the same time: ``mkdir(exist_ok=True)`` fails when
    # both happen. Whether it is there shows when it is used.
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        folder.mkdir()
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        # Empty, and removed by ``delete`` at this moment.
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
