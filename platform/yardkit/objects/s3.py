"""Objects in a bucket of S3 or its kin (MinIO, Ceph, R2), ``s3://bucket/prefix?...``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from yardkit.errors import first_line
from yardkit.objects.base import (
    PART_BYTES,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectStoreUnavailable,
    checked,
    checked_prefix,
)

if TYPE_CHECKING:
    from obstore.store import S3Store

# After it a call fails: whoever called knows better what to do meanwhile.
RETRY_SECONDS: Final = 10.0
TIMEOUT_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 5.0
# S3 deletes at most 1,000 objects with one call.
_DELETED_AT_ONCE: Final = 1000


class S3Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Bucket and access. Without keys those of the environment are used (AWS_*, or a role)."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = "us-east-1"
    path_style: bool = False
    access_key: str = ""
    secret_key: str = ""


class BucketStore:
    """Object store in a bucket."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self._opened: S3Store | None = None

    def put(self, key: str, content: bytes, *, create: bool = False) -> None:
        import obstore

        with self._errors(key):
            obstore.put(
                self._store(),
                self._key(key),
                content,
                mode="create" if create else "overwrite",
                use_multipart=False if create else None,
            )

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> int:
        import obstore

        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for chunk in chunks:
                size += len(chunk)
                yield chunk

        with self._errors(key):
            obstore.put(
                self._store(),
                self._key(key),
                counted(),
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=2,
            )
        return size

    def get(self, key: str) -> bytes:
        import obstore

        with self._errors(key):
            return bytes(obstore.get(self._store(), self._key(key)).bytes())

    def stream(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        import obstore

        if length == 0:
            return
        with self._errors(key):
            options: Any = None
            if length is not None:
                options = {"range": (start, start + length)}
            elif start:
                options = {"range": {"offset": start}}
            found = obstore.get(self._store(), self._key(key), options=options)
            for chunk in found.stream(min_chunk_size=1024 * 1024):
                yield bytes(chunk)

    def head(self, key: str) -> ObjectInfo:
        import obstore

        with self._errors(key):
            found = obstore.head(self._store(), self._key(key))
            return ObjectInfo(key, found["size"], found["last_modified"])

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        import obstore

        root = f"{self._settings.prefix}/" if self._settings.prefix else ""
        with self._errors(prefix):
            for page in obstore.list(self._store(), prefix=f"{root}{checked_prefix(prefix)}"):
                for found in page:
                    key = found["path"].removeprefix(root)
                    yield ObjectInfo(key, found["size"], found["last_modified"])

    def delete(self, keys: Iterable[str]) -> None:
        import obstore

        waiting = [self._key(key) for key in keys]
        for begin in range(0, len(waiting), _DELETED_AT_ONCE):
            with self._errors(waiting[begin]), contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store(), waiting[begin : begin + _DELETED_AT_ONCE])

    def location(self, key: str) -> str:
        return f"s3://{self._settings.bucket}/{self._key(key)}"

    def local_path(self, key: str) -> Path | None:
        return None

    def arrow(self) -> tuple[Any, str]:
        from pyarrow.fs import S3FileSystem

        settings = self._settings
        scheme, _, host = settings.endpoint.rpartition("://")
        known = {"access_key": settings.access_key, "secret_key": settings.secret_key}
        filesystem = S3FileSystem(
            region=settings.region,
            endpoint_override=host or None,
            scheme=scheme or "https",
            force_virtual_addressing=bool(host) and not settings.path_style,
            connect_timeout=CONNECT_SECONDS,
            request_timeout=TIMEOUT_SECONDS,
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
            "s3.connect-timeout": str(CONNECT_SECONDS),
            "s3.request-timeout": str(TIMEOUT_SECONDS),
            "s3.force-virtual-addressing": str(not settings.path_style)
            if settings.endpoint
            else "",
        }
        return {name: value for name, value in found.items() if value}

    def _key(self, key: str) -> str:
        return "/".join(filter(None, [self._settings.prefix, checked(key)]))

    def _store(self) -> S3Store:
        if self._opened is None:
            # Imported on first use: every web process imports this module.
            from obstore.store import S3Store

            settings = self._settings
            config: Any = {
                "bucket": settings.bucket,
                "region": settings.region,
                "virtual_hosted_style_request": not settings.path_style,
            }
            if settings.endpoint:
                config["endpoint"] = settings.endpoint
            if settings.access_key:
                config["access_key_id"] = settings.access_key
                config["secret_access_key"] = settings.secret_key
            self._opened = S3Store(
                config=config,
                client_options={
                    "allow_http": settings.endpoint.startswith("http://"),
                    "timeout": timedelta(seconds=TIMEOUT_SECONDS),
                    "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                },
                retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
            )
        return self._opened

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        from obstore import exceptions

        try:
            yield
        except FileNotFoundError as error:
            raise ObjectMissing(f"{key}: no such object in {self._settings.bucket}") from error
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
            raise ObjectExists(f"{key}: exists already in {self._settings.bucket}") from error
        except (exceptions.BaseError, OSError) as error:
            text = f"bucket {self._settings.bucket}: {key}: {first_line(error)}"
            raise ObjectStoreUnavailable(text) from error
