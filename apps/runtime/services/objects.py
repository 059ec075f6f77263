"""Object store of this process."""

from __future__ import annotations

from functools import lru_cache

from django.conf import settings

from yardkit.objects import ObjectStore, open_objects


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
