"""Opens the object store that a URL names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from yardkit.objects.base import BadObjectsURL, ObjectStore, checked
from yardkit.objects.folder import FolderStore
from yardkit.objects.s3 import BucketStore, S3Settings

_HOW: Final = (
    "use file:///folder or s3://bucket/prefix?endpoint=https://host:port&region=name&path_style=1"
)
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_OPTIONS: Final = frozenset({"endpoint", "region", "path_style"})


def open_objects(url: str, *, access_key: str = "", secret_key: str = "") -> ObjectStore:
    """Return the object store of a URL; nothing is connected to yet. Raises ``BadObjectsURL``."""
    try:
        parts = urlsplit(url)
        options = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
    except ValueError:
        raise BadObjectsURL(f"not understood; {_HOW}") from None
    if parts.scheme == "file":
        folder = unquote(parts.path)
        if parts.netloc or not folder.strip("/") or options:
            raise BadObjectsURL(f"not understood; {_HOW}")
        return FolderStore(Path(folder))
    if parts.scheme != "s3":
        raise BadObjectsURL(f"not understood; {_HOW}")
    if parts.username or parts.password:
        raise BadObjectsURL(
            "keys do not belong in the URL; use OBJECTS_ACCESS_KEY and OBJECTS_SECRET_KEY"
        )
    return BucketStore(_s3(parts.netloc, parts.path, options, access_key, secret_key))


def _s3(
    bucket: str, path: str, options: dict[str, str], access_key: str, secret_key: str
) -> S3Settings:
    if not _BUCKET.fullmatch(bucket):
        raise BadObjectsURL(f"{bucket!r} is no name of a bucket; {_HOW}")
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise BadObjectsURL(f"unknown option {unknown[0]!r}; {_HOW}")
    prefix = unquote(path).strip("/")
    endpoint = options.get("endpoint", "").rstrip("/")
    try:
        if prefix:
            checked(prefix)
        parts = urlsplit(endpoint)
        usable = not endpoint or (parts.scheme in ("http", "https") and bool(parts.hostname))
    except ValueError:
        usable = False
    if not usable or options.get("path_style", "0") not in ("0", "1"):
        raise BadObjectsURL(f"not understood; {_HOW}")
    if bool(access_key) != bool(secret_key):
        raise BadObjectsURL("OBJECTS_ACCESS_KEY and OBJECTS_SECRET_KEY belong together")
    return S3Settings(
        bucket=bucket,
        prefix=prefix,
        endpoint=endpoint,
        region=options.get("region", "us-east-1"),
        # Servers of one's own rarely have a name for each bucket.
        path_style=options.get("path_style", "1" if endpoint else "0") == "1",
        access_key=access_key,
        secret_key=secret_key,
    )
