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

    def _write(self, key: str, chunks: Iterable[bytes], *, create: bool = False) -> int:
        path = self._path(key)
        written = self._folder / INCOMPLETE / uuid4().hex
        size = 0
        try:
            with self._errors(key):
                self._sweep_once()
                file = _in_folder(written.parent, lambda: written.open("xb"))
            try:
                # Errors of the caller's iterator are not the store's.
                for chunk in chunks:
                    with self._errors(key):
                        size += file.write(chunk)
                with self._errors(key):
                    file.flush()
                    os.fsync(file.fileno())
            finally:
                # After an error it tries once more to write what is buffered.
                with contextlib.suppress(OSError):
                    file.close()
            with self._errors(key):
                self._place(written, path, key, create=create)
        finally:
            with contextlib.suppress(OSError):
                written.unlink(missing_ok=True)
        return size

    def _place(self, written: Path, path: Path, key: str, *, create: bool) -> None:
        # Unlike a rename, a link does not replace what is there.
        place = os.link if create else os.replace

        def placed() -> None:
            try:
                place(written, path)
            except FileExistsError as error:
                raise ObjectExists(f"{key}: exists already in {self._folder}") from error
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
