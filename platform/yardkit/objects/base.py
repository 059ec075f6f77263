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
    """Store of objects. Threads may share one. Every call may raise ``ObjectStoreUnavailable``."""

    def put(self, key: str, content: bytes, *, create: bool = False) -> None:
        """Write an object; it is durable and complete on return, or not there at all.

        Raises ``ObjectExists`` with ``create`` if the key is taken.
        """

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> int:
        """Write an object part by part, in flat memory; return its size."""

    def get(self, key: str) -> bytes:
        """Return an object. Raises ``ObjectMissing``."""

    def stream(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield an object, or ``length`` bytes of it from ``start``, in chunks.

        Raises ``ObjectMissing``.
        """

    def head(self, key: str) -> ObjectInfo:
        """Return size and time. Raises ``ObjectMissing``."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix, which ends with ``/``; in no order."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are missing are none less."""

    def location(self, key: str) -> str:
        """Return the address for readers such as Spark: ``file:///..`` or ``s3://bucket/..``."""

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
        or {".", ".."} & set(parts)
        or not key.isprintable()
        or "\\" in key
        or len(key.encode("utf-8", "replace")) > MAX_KEY_BYTES
    ):
        raise ValueError(f"{key[:200]!r} is no key of an object")
    return key


def checked_prefix(prefix: str) -> str:
    """Return a valid prefix, which ends with a slash. Raises ``ValueError``."""
    if not prefix.endswith("/"):
        raise ValueError(f"the prefix {prefix[:200]!r} does not end with a slash")
    checked(prefix[:-1])
    return prefix


def probe(store: ObjectStore, name: str) -> None:
    """Write, read and delete an object; raise ``ObjectStoreError`` if that fails."""
    key, content = f"probes/{name}", name.encode()
    store.put(key, content)
    if store.get(key) != content:
        raise ObjectStoreUnavailable(f"{key} was read back with other content")
    store.delete([key])
