"""Settings of stored requests."""

from __future__ import annotations

import re
from typing import Final

from yardkit.env import Env, EnvError
from yardkit.standard_webhooks import secret_problem

_SCHEMES: Final = ("sqlite:///", "postgresql://", "postgres://", "mongodb://", "mongodb+srv://")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
_PREFIX: Final = re.compile(r"[a-z][a-z0-9]{0,15}")


def request_nodes(env: Env, url: str) -> dict[str, str]:
    """Every storage node by name: ``default`` is REQUESTS_URL, the others of REQUESTS_NODES.

    Raises ``EnvError``; no text of it holds an address, which may hold a password.
    """
    nodes = {"default": _checked("REQUESTS_URL", url)}
    for entry in env.secret("REQUESTS_NODES", default="").split():
        name, sign, address = entry.partition("=")
        if not sign or not _NAME.fullmatch(name):
            raise EnvError("REQUESTS_NODES: not understood; use node2=mongodb://... node3=...")
        if name in nodes:
            raise EnvError(f"REQUESTS_NODES: the node {name} is there twice")
        nodes[name] = _checked(f"REQUESTS_NODES: {name}", address)
    return nodes


def request_prefix(env: Env) -> str:
    """What databases begin with."""
    prefix = env.str("REQUESTS_PREFIX", default="crawlyard")
    if not _PREFIX.fullmatch(prefix):
        raise EnvError("REQUESTS_PREFIX: use a-z and 0-9, at most 16, a letter first")
    return prefix


def scale_webhook(env: Env) -> tuple[str, str]:
    """Where the wanted number of fetchers is POSTed to, and the secret it is signed with."""
    url = env.secret("SCALE_WEBHOOK_URL", default="")
    secret = env.secret("SCALE_WEBHOOK_SECRET", default="")
    if url and not re.match(r"https?://[^/\s]+", url):
        raise EnvError("SCALE_WEBHOOK_URL: not understood; use https://host/path")
    problem = secret_problem(secret)
    if url and problem == "short":
        raise EnvError("SCALE_WEBHOOK_SECRET: needed with SCALE_WEBHOOK_URL, 16 characters or more")
    if problem == "base64":
        raise EnvError("SCALE_WEBHOOK_SECRET: what follows whsec_ is no base64")
    return url, secret


def _checked(name: str, url: str) -> str:
    if not url.startswith(_SCHEMES):
        raise EnvError(
            f"{name}: not understood; use sqlite:///folder, postgresql://host/name "
            "or mongodb://host/?replicaSet=rs0"
        )
    return url
