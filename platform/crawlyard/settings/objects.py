"""Settings of the object store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from yardkit.env import Env, EnvError
from yardkit.objects import BadObjectsURL, open_objects


def _listens_at(env: Env) -> str:
    """Return OBJECTS_LISTEN, ``host:port``. Raises ``EnvError``."""
    listen = env.str("OBJECTS_LISTEN", default="127.0.0.1:8010")
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise EnvError(
            "OBJECTS_LISTEN", f"{listen[:80]!r} is no place", "use one such as 0.0.0.0:8010"
        )
    return listen


def objects(env: Env, folder: Path) -> tuple[str, str, str, str, str]:
    """Return OBJECTS_URL, by default ``folder``, both keys, OBJECTS_PUBLIC_URL and
    OBJECTS_LISTEN, where ``run_objects`` listens.

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
    return url, *keys, public_url, _listens_at(env)
