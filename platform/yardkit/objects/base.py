"""Interface of object stores; one contract test covers every adapter.

A key is a relative path such as ``datasets/p1/d2/segments/run-7/5f0c.parquet``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

MAX_KEY_BYTES: Final = 900
# Limit of file systems for one name.
MAX_PART_BYTES: Final = 255
# Bytes of one part of a streamed object; S3 takes 10,000 of them.
PART_BYTES: Final = 8 * 1024 * 1024


class ObjectStoreError(Exception):
    """Base of the errors of object stores; the text names the key or the store."""


class BadObjectsURL(ObjectStoreError):
    """The URL cannot be used; the text says why, without its secrets."""


class ObjectMissing(ObjectStoreError):
    """There is no object of this key."""


class ObjectExists(ObjectStoreError):
    """``create`` was asked for, and the key is taken."""


class ObjectStoreUnavailable(ObjectStoreError):
    """The store does not answer, refuses access, or is full. A repeat is harmless."""


class ObjectInfo(msgspec.Struct, frozen=True):
    """Key, size in bytes and time of the last write of an object."""

    key: str
    size: int
    modified_at: datetime


class ObjectStore(Protocol):
    """Store of objects. Threads may share one, forked processes may not.

    Every call may raise ``ObjectStoreUnavailable``: no later than the store's timeout after a
    request, its repetitions included. A stream consists of many requests.
    """

    def put(self, key: str, content: bytes, *, create: bool = False) -> None:
        """Write an object; it is durable and complete on return, or not there at all.

        Raises ``ObjectExists`` with ``create`` if the key is taken.
        """

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> int:
        """Write an object part by part, in flat memory; return its size.

        Errors of the iterator are raised as they are, and nothing is written then.
        """

    def get(self, key: str) -> bytes:
        """Return an object. Raises ``ObjectMissing``."""

    def stream(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield an object, or up to ``length`` bytes of it from ``start``, in chunks.

        Nothing beyond its end. The call itself raises ``ObjectMissing``, not the first ``next()``.
        """

    def head(self, key: str) -> ObjectInfo:
        """Return size and time. Raises ``ObjectMissing``."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix, which ends with ``/``, or all; in no order."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are missing are none less."""

    def sign(self, method: str, key: str, seconds: int) -> str:
        """Return an address that gives one method (GET, PUT, DELETE) on one object for a time.

        Whoever has it needs no credentials of the store. Nothing is connected to. Raises
        ``ObjectStoreUnavailable`` for a folder without an object server.
        """

    def location(self, key: str) -> str:
        """Return the address for readers such as Spark, not quoted: ``file:///..``, ``s3://..``."""

    def local_path(self, key: str) -> Path | None:
        """Return the file of an object, None if the store is no folder."""

    def arrow(self) -> tuple[Any, str]:
        """Return a pyarrow filesystem and the path of the store in it."""

    def iceberg_properties(self) -> Mapping[str, str]:
        """Return what pyiceberg's file access needs, with credentials."""


def checked(key: str) -> str:
    """Return a valid key. Raises ``ValueError``."""
    parts = key.split("/")
    if (
        not all(parts)
        or any(part.startswith(".") for part in parts)
        or not key.isprintable()
        or "\\" in key
        or len(key.encode()) > MAX_KEY_BYTES
        or any(len(part.encode()) > MAX_PART_BYTES for part in parts)
    ):
        raise ValueError(f"{key[:200]!r} is no key of an object")
    return key


def checked_prefix(prefix: str) -> str:
    """Return a valid prefix, "" or one that ends with a slash. Raises ``ValueError``."""
    if prefix and not prefix.endswith("/"):
        raise ValueError(f"the prefix {prefix[:200]!r} does not end with a slash")
    if prefix:
        checked(prefix[:-1])
    return prefix


def check_range(start: int, length: int | None) -> None:
    """Raise ``ValueError`` for a negative number."""
    if start < 0 or (length is not None and length < 0):
        raise ValueError(f"start {start} and length {length} of a range must not be negative")


def probe(store: ObjectStore, name: str) -> None:
    """Write, read and delete an object; raise ``ObjectStoreError`` if that fails."""
    key, content = f"probes/{name}", name.encode()
    store.put(key, content)
    if store.get(key) != content:
        raise ObjectStoreUnavailable(f"{key} was read back with other content")
    store.delete([key])
