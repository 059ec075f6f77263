"""Opens the object store that a URL names."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from yardkit.objects.base import BadObjectsURL, ObjectStore, checked
from yardkit.objects.folder import FolderStore
from yardkit.objects.s3 import BucketStore, S3Settings
from yardkit.objects.signing import AddressSigner

_HOW: Final = (
    "use file:///folder or s3://bucket/prefix?endpoint=https://host:port&region=name&path_style=1"
)
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_OPTIONS: Final = frozenset({"endpoint", "region", "path_style"})


# Limit in seconds of a request to a bucket; the caller knows better what to do after it.
TIMEOUT_SECONDS: Final = 30.0


def open_objects(
    url: str,
    *,
    access_key: str = "",
    secret_key: str = "",
    timeout: float = TIMEOUT_SECONDS,
    public_url: str = "",
    signing_secret: str = "",
) -> ObjectStore:
    """Return the object store of a URL; nothing is connected to yet. Raises ``BadObjectsURL``.

    What the URL of a bucket leaves out comes from the usual variables (``AWS_REGION``, ...).
    ``public_url`` and ``signing_secret`` are for signed addresses: the object server of a folder,
    or the bucket's endpoint as agents and runs reach it.
    """
    if public_url and not _is_public(public_url):
        raise BadObjectsURL(
            "the public address is not understood; use one such as https://objects.example"
        )
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
        signed = public_url and signing_secret
        signer = AddressSigner(public_url, signing_secret) if signed else None
        return FolderStore(Path(folder), signer)
    if parts.scheme != "s3":
        raise BadObjectsURL(f"not understood; {_HOW}")
    if parts.username or parts.password:
        raise BadObjectsURL(
            "keys do not belong in the URL; use OBJECTS_ACCESS_KEY and OBJECTS_SECRET_KEY"
        )
    if bool(access_key) != bool(secret_key):
        raise BadObjectsURL("OBJECTS_ACCESS_KEY and OBJECTS_SECRET_KEY belong together")
    settings = _s3(parts.netloc, parts.path, options)
    return BucketStore(
        msgspec.structs.replace(
            settings,
            access_key=access_key,
            secret_key=secret_key,
            timeout=timeout,
            public_endpoint=public_url.rstrip("/"),
        )
    )


def _s3(bucket: str, path: str, options: dict[str, str]) -> S3Settings:
    if not _BUCKET.fullmatch(bucket):
        raise BadObjectsURL(f"{bucket!r} is no name of a bucket; {_HOW}")
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise BadObjectsURL(f"unknown option {unknown[0]!r}; {_HOW}")
    prefix = unquote(path).strip("/")
    endpoint = options.get("endpoint") or _variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    endpoint = endpoint.rstrip("/")
    region = options.get("region") or _variable("AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1"
    try:
        if prefix:
            checked(prefix)
        usable = not endpoint or _is_origin(endpoint)
    except ValueError:
        usable = False
    if (
        not usable
        or not _REGION.fullmatch(region)
        or options.get("path_style", "0") not in ("0", "1")
    ):
        raise BadObjectsURL(f"not understood; {_HOW}")
    return S3Settings(
        bucket=bucket,
        prefix=prefix,
        endpoint=endpoint,
        region=region,
        # Servers of one's own rarely have a name for each bucket.
        path_style=options.get("path_style", "1" if endpoint else "0") == "1",
        timeout=TIMEOUT_SECONDS,
    )


def _is_origin(url: str) -> bool:
    parts = urlsplit(url)
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and parts.port != 0
        and "@" not in parts.netloc
        and not (parts.path or parts.query or parts.fragment)
    )


def _is_public(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and not (parts.username or parts.query or parts.fragment)
        )
    except ValueError:
        return False


def _variable(*names: str) -> str:
    """Return the first of the environment's variables that is set, or ""."""
    return next(filter(None, map(os.environ.get, names)), None) or ""
