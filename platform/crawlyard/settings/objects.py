"""Settings of the object store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from yardkit.env import Env, EnvError
from yardkit.objects import BadObjectsURL, open_objects


def objects(env: Env, folder: Path) -> tuple[str, str, str, str]:
    """Return OBJECTS_URL, by default ``folder``, both keys and OBJECTS_PUBLIC_URL.

    Raises ``EnvError``.
    """
    url = env.str("OBJECTS_URL", default=f"file://{quote(str(folder))}")
    keys = (
        env.secret("OBJECTS_ACCESS_KEY", default=""),
        env.secret("OBJECTS_SECRET_KEY", default=""),
    )
    try:
        open_objects(url, access_key=keys[0], secret_key=keys[1])
    except BadObjectsURL as error:
        raise EnvError(f"OBJECTS_URL: {error}") from None
    public_url = env.str("OBJECTS_PUBLIC_URL", default="")
    try:
        open_objects(url, access_key=keys[0], secret_key=keys[1], public_url=public_url)
    except BadObjectsURL as error:
        raise EnvError(f"OBJECTS_PUBLIC_URL: {error}") from None
    return url, *keys, public_url
