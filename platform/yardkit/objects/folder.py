"""Objects as files of a folder, ``file:///path``."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from yardkit.objects.base import (
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectStoreUnavailable,
    checked,
    checked_prefix,
)

_CHUNK_BYTES: Final = 1024 * 1024
# Files that are being written. Listed by nobody, since no key begins with a dot.
_TEMPORARY: Final = ".writing-"


class FolderStore:
    """Object store in a folder. An object appears whole, by a rename, after it was synced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, key: str, content: bytes, *, create: bool = False) -> None:
        self._write(key, [content], create=create)

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> int:
        return self._write(key, chunks)

    def get(self, key: str) -> bytes:
        with self._errors(key):
            return self._path(key).read_bytes()

    def stream(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        with self._errors(key), self._path(key).open("rb") as file:
            file.seek(start)
            left = length
            while left is None or left > 0:
                chunk = file.read(_CHUNK_BYTES if left is None else min(left, _CHUNK_BYTES))
                if not chunk:
                    return
                if left is not None:
                    left -= len(chunk)
                yield chunk

    def head(self, key: str) -> ObjectInfo:
        with self._errors(key):
            return _info(key, self._path(key).stat())

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        root = self._folder / checked_prefix(prefix)
        for folder, _folders, files in os.walk(root):
            for name in files:
                path = Path(folder, name)
                if not name.startswith(_TEMPORARY):
                    # Others may delete at the same time.
                    with contextlib.suppress(FileNotFoundError):
                        yield _info(path.relative_to(self._folder).as_posix(), path.stat())

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            with self._errors(key), contextlib.suppress(FileNotFoundError):
                path.unlink()
            # Empty folders would stay for ever; one that is in use is not empty.
            with contextlib.suppress(OSError):
                for parent in path.parents:
                    if parent == self._folder:
                        break
                    parent.rmdir()

    def location(self, key: str) -> str:
        return self._path(key).absolute().as_uri()

    def local_path(self, key: str) -> Path | None:
        return self._path(key).absolute()

    def arrow(self) -> tuple[Any, str]:
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem(), str(self._folder.absolute())

    def iceberg_properties(self) -> Mapping[str, str]:
        return {}

    def _path(self, key: str) -> Path:
        return self._folder / checked(key)

    def _write(self, key: str, chunks: Iterable[bytes], *, create: bool = False) -> int:
        path = self._path(key)
        size = 0
        with self._errors(key):
            file, temporary = self._temporary(path.parent)
            try:
                with os.fdopen(file, "wb") as opened:
                    for chunk in chunks:
                        size += opened.write(chunk)
                    opened.flush()
                    os.fsync(opened.fileno())
                if create:
                    # Unlike a rename, a link does not replace what is there.
                    os.link(temporary, path)
                    os.unlink(temporary)
                else:
                    os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            _sync(path.parent)
        return size

    def _temporary(self, folder: Path) -> tuple[int, str]:
        # A folder that has just become empty may be removed by ``delete`` at this moment.
        for attempt in range(3):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                return tempfile.mkstemp(prefix=_TEMPORARY, dir=folder)
            except FileNotFoundError:
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ObjectMissing(f"{key}: no such object in {self._folder}") from error
        except FileExistsError as error:
            raise ObjectExists(f"{key}: exists already in {self._folder}") from error
        except OSError as error:
            text = error.strerror or str(error)
            raise ObjectStoreUnavailable(f"{self._folder}: {key}: {text}") from error


def _info(key: str, stat: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC))


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
