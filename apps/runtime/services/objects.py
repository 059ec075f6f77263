"""Object store of this process."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from uuid import uuid4

from django.conf import settings

from yardkit.object_client import ObjectClient, TransferFailed
from yardkit.objects import ObjectStore, ObjectStoreError, open_objects


def shared_objects() -> ObjectStore:
    """Return the store of ``settings.OBJECTS_URL``, shared by all threads."""
    return _opened(
        settings.OBJECTS_URL,
        settings.OBJECTS_ACCESS_KEY,
        settings.OBJECTS_SECRET_KEY,
        settings.OBJECTS_PUBLIC_URL,
        settings.SECRET_KEY,
    )


@lru_cache(maxsize=4)
def _opened(
    url: str, access_key: str, secret_key: str, public_url: str, signing_secret: str
) -> ObjectStore:
    return open_objects(
        url,
        access_key=access_key,
        secret_key=secret_key,
        public_url=public_url,
        signing_secret=signing_secret,
    )


def problem_of_signed_addresses(store: ObjectStore) -> str:
    """Return why a signed address cannot be read, "" if it can or none is handed out."""
    if store.local_path("any") is not None and not settings.OBJECTS_PUBLIC_URL:
        return ""
    client = ObjectClient(timeout_seconds=5.0)
    key = f"probes/{uuid4().hex}"
    try:
        store.put(key, b"probe")
        list(client.get(store.sign("GET", key, 60)))
    except (ObjectStoreError, TransferFailed) as error:
        return str(error)
    finally:
        client.close()
        with contextlib.suppress(ObjectStoreError):
            store.delete([key])
    return ""
