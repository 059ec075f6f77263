"""Object store of the platform, ``OBJECTS_URL``: a folder, or a bucket of S3 or its kin."""

from __future__ import annotations

from yardkit.objects.base import (
    BadObjectsURL,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    ObjectStoreError,
    ObjectStoreUnavailable,
)
from yardkit.objects.factory import open_objects

__all__ = [
    "BadObjectsURL",
    "ObjectExists",
    "ObjectInfo",
    "ObjectMissing",
    "ObjectStore",
    "ObjectStoreError",
    "ObjectStoreUnavailable",
    "open_objects",
]
