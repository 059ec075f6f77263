"""Objects in a bucket of S3 or its kin (MinIO, Ceph, R2), ``s3://bucket/prefix?...``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from yardkit.errors import first_line
from yardkit.objects.base import (
    PART_BYTES,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectStoreUnavailable,
    check_range,
    checked,
    checked_prefix,
)
from yardkit.objects.signing import METHODS

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import S3Store

# Parts of one upload at once; with ``PART_BYTES`` the memory of a stream.
_PARTS_AT_ONCE: Final = 2
_MAX_RETRIES: Final = 5
# S3 deletes at most 1,000 objects with one call.
_DELETED_AT_ONCE: Final = 1000
_LISTED_AT_ONCE: Final = 1000
_SHOWN_CHARACTERS: Final = 300


class S3Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Bucket and access. Without keys those of the environment are used (AWS_*, or a role).

    ``timeout``: limit in seconds of a request, its repetitions included. ``public_endpoint``: of
    signed addresses, where agents and runs reach the bucket by another one.
    """

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = "us-east-1"
    path_style: bool = False
    access_key: str = ""
    secret_key: str = ""
    timeout: float
    public_endpoint: str = ""


# Process that has started the threads of obstore, 0 for none: in a fork of it calls never end.
_threads_of = 0


class BucketStore:
    """Object store in a bucket."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self._opened: S3Store | None = None
        self._signing: S3Store | None = None

    def put(self, key: str, content: bytes, *, create: bool = False) -> None:
        with self._errors(key):
            self._store().put(
                self._key(key),
                content,
                mode="create" if create else "overwrite",
                chunk_size=PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> int:
        source = _Source(chunks)
        try:
            with self._errors(key):
                self._store().put(
                    self._key(key),
                    source,
                    use_multipart=True,
                    chunk_size=PART_BYTES,
                    max_concurrency=_PARTS_AT_ONCE,
                )
        except ObjectStoreUnavailable:
            # obstore wraps what the iterator has raised.
            if source.error is not None:
                raise source.error from None
            raise
        return source.size

    def get(self, key: str) -> bytes:
        return b"".join(self.stream(key))

    def stream(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        check_range(start, length)
        end = None if length is None else start + length
        return self._parts(key, self._part(key, start, end), start, end)

    def head(self, key: str) -> ObjectInfo:
        with self._errors(key):
            found = self._store().head(self._key(key))
            return ObjectInfo(key, found["size"], found["last_modified"])

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        root = f"{self._settings.prefix}/" if self._settings.prefix else ""
        below = f"{root}{checked_prefix(prefix)}"
        with self._errors(prefix):
            for page in self._store().list(below, chunk_size=_LISTED_AT_ONCE):
                for found in page:
                    key = found["path"].removeprefix(root)
                    yield ObjectInfo(key, found["size"], found["last_modified"])

    def delete(self, keys: Iterable[str]) -> None:
        waiting = [self._key(key) for key in keys]
        for begin in range(0, len(waiting), _DELETED_AT_ONCE):
            with self._errors(waiting[begin]):
                self._store().delete(waiting[begin : begin + _DELETED_AT_ONCE])

    def sign(self, method: str, key: str, seconds: int) -> str:
        import obstore

        if method not in METHODS:
            raise ValueError(f"{method!r} is no method of a signed address")
        if self._signing is None:
            public = self._settings.public_endpoint
            self._signing = self._made(public) if public else self._store()
        with self._errors(key):
            return obstore.sign(
                self._signing,
                cast(Literal["GET", "PUT", "DELETE"], method),
                self._key(key),
                timedelta(seconds=seconds),
            )

    def location(self, key: str) -> str:
        return f"s3://{self._settings.bucket}/{self._key(key)}"

    def local_path(self, key: str) -> Path | None:
        return None

    def arrow(self) -> tuple[Any, str]:
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

        settings = self._settings
        scheme, _, host = settings.endpoint.rpartition("://")
        known = {"access_key": settings.access_key, "secret_key": settings.secret_key}
        filesystem = S3FileSystem(
            region=settings.region,
            endpoint_override=host or None,
            scheme=scheme or "https",
            force_virtual_addressing=bool(host) and not settings.path_style,
            connect_timeout=settings.timeout / 2,
            request_timeout=settings.timeout / 2,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=2),
            **{name: value for name, value in known.items() if value},
        )
        return filesystem, "/".join(filter(None, [settings.bucket, settings.prefix]))

    def iceberg_properties(self) -> Mapping[str, str]:
        settings = self._settings
        found = {
            "s3.endpoint": settings.endpoint,
            "s3.region": settings.region,
            "s3.access-key-id": settings.access_key,
            "s3.secret-access-key": settings.secret_key,
            # It tries three times.
            "s3.connect-timeout": str(settings.timeout / 3),
            "s3.request-timeout": str(settings.timeout / 3),
            "s3.force-virtual-addressing": str(not settings.path_style)
            if settings.endpoint
            else "",
        }
        return {name: value for name, value in found.items() if value}

    def _key(self, key: str) -> str:
        return "/".join(filter(None, [self._settings.prefix, checked(key)]))

    def _part(
        self, key: str, start: int, end: int | None, e_tag: str | None = None
    ) -> tuple[ObjectMeta, bytes] | None:
        """Return the object's data and up to ``PART_BYTES`` of it; None for nothing."""
        stop = start + PART_BYTES if end is None else min(end, start + PART_BYTES)
        if stop > start:
            try:
                with self._errors(key):
                    options: GetOptions = {"range": (start, stop)}
                    if e_tag is not None:
                        options["if_match"] = e_tag
                    found = self._store().get(self._key(key), options=options)
                    return found.meta, bytes(found.bytes())
            except ObjectStoreUnavailable:
                # A range beyond the end is refused, as any range of an empty object is.
                if e_tag is not None or self.head(key).size > start:
                    raise
        else:
            self.head(key)
        return None

    def _parts(
        self, key: str, part: tuple[ObjectMeta, bytes] | None, start: int, end: int | None
    ) -> Iterator[bytes]:
        # One request for each part: a slow reader keeps no request open.
        while part is not None:
            meta, data = part
            yield data
            start += len(data)
            if start >= (meta["size"] if end is None else min(end, meta["size"])):
                return
            part = self._part(key, start, end, meta["e_tag"])

    def _store(self) -> S3Store:
        global _threads_of
        _threads_of = _threads_of or os.getpid()
        if _threads_of != os.getpid():
            raise RuntimeError("S3 was used before this process was forked; use it after that only")
        if self._opened is None:
            self._opened = self._made(self._settings.endpoint)
        return self._opened

    def _made(self, endpoint: str) -> S3Store:
        # Imported on first use: every web process imports this module.
        from obstore.store import S3Store

        settings = self._settings
        config: Any = {
            "bucket": settings.bucket,
            "region": settings.region,
            "virtual_hosted_style_request": not settings.path_style,
        }
        if endpoint:
            scheme, _, host = endpoint.partition("://")
            name = "" if settings.path_style else f"{settings.bucket}."
            config["endpoint"] = f"{scheme}://{name}{host}"
        if settings.access_key:
            config["access_key_id"] = settings.access_key
            config["secret_access_key"] = settings.secret_key
        # The last repetition begins in the first half of the time and ends in the second.
        half = timedelta(seconds=settings.timeout / 2)
        return S3Store(
            config=config,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "timeout": half,
                "connect_timeout": half,
            },
            retry_config={
                "max_retries": _MAX_RETRIES,
                "retry_timeout": half,
                # The first must be below the longest: obstore panics else.
                "backoff": {"init_backoff": half / 100, "max_backoff": half / 10},
            },
        )

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        from obstore import exceptions

        settings = self._settings
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise self._unavailable(key, error) from None
            raise ObjectMissing(f"{key}: no such object in {settings.bucket}") from None
        except exceptions.AlreadyExistsError:
            raise ObjectExists(f"{key}: exists already in {settings.bucket}") from None
        except (exceptions.BaseError, OSError) as error:
            raise self._unavailable(key, error) from None

    def _unavailable(self, key: str, error: Exception) -> ObjectStoreUnavailable:
        text = first_line(error)[:_SHOWN_CHARACTERS]
        for secret in filter(None, (self._settings.secret_key, self._settings.access_key)):
            text = text.replace(secret, "****")
        return ObjectStoreUnavailable(f"bucket {self._settings.bucket}: {key}: {text}")


class _Source:
    """Iterates over chunks; keeps their size and the iterator's error."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self.size = 0
        self.error: Exception | None = None

    def __iter__(self) -> _Source:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except StopIteration:
            raise
        except Exception as error:
            self.error = error
            raise
        self.size += len(chunk)
        return chunk
