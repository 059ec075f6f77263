"""Settings of stored requests."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from yardkit.env import Env, EnvError
from yardkit.names import IDENTIFIER
from yardkit.standard_webhooks import secret_problem

logger = logging.getLogger(__name__)

# Interval of checking the file of nodes for changes, in seconds.
LOOK_SECONDS: Final = 0.5
_SCHEMES: Final = ("sqlite:///", "postgresql://", "postgres://", "mongodb://", "mongodb+srv://")
_PREFIX: Final = re.compile(r"[a-z][a-z0-9]{0,15}")


class RequestNodes(Mapping[str, str]):
    """URLs of storage nodes by name.

    Where ``REQUESTS_NODES_FILE`` names a file, nodes added to it are known within a second,
    without a restart. An invalid change is logged, and the previous nodes stay.
    """

    def __init__(self, env: Env, url: str) -> None:
        """Read the nodes. Raises ``EnvError``."""
        self._env, self._url = env, url
        self._file = env.file_of("REQUESTS_NODES")
        self._lock = threading.Lock()
        self._look_at = 0.0
        self._stamp = _stamp(self._file)
        self._nodes = request_nodes(env, url)

    def __getitem__(self, name: str) -> str:
        return self._known()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())

    def __repr__(self) -> str:
        """Show the names only: URLs may contain passwords."""
        return f"RequestNodes({', '.join(self)})"

    def _known(self) -> dict[str, str]:
        if self._file is not None and time.monotonic() >= self._look_at:
            with self._lock:
                self._look_at = time.monotonic() + LOOK_SECONDS
                stamp = _stamp(self._file)
                if stamp != self._stamp:
                    self._stamp = stamp
                    self._read_again()
        return self._nodes

    def _read_again(self) -> None:
        try:
            self._nodes = request_nodes(self._env, self._url)
        except EnvError as error:
            logger.warning("the storage nodes stay as they were: %s", error)
        else:
            logger.info("storage nodes: %s", ", ".join(self._nodes))


def _stamp(file: Path | None) -> tuple[int, ...]:
    """Return a value that changes with the file; constant for a missing file."""
    try:
        status = file.stat() if file is not None else None
    except OSError:
        return ()
    return () if status is None else (status.st_mtime_ns, status.st_size, status.st_ino)


def request_nodes(env: Env, url: str) -> dict[str, str]:
    """Return storage nodes by name: ``default`` is REQUESTS_URL, others are in REQUESTS_NODES.

    Raises ``EnvError``; its texts omit URLs, which may contain passwords.
    """
    nodes = {"default": _checked("REQUESTS_URL", url)}
    for entry in env.secret("REQUESTS_NODES", default="").split():
        name, sign, address = entry.partition("=")
        if not sign or not IDENTIFIER.fullmatch(name):
            raise EnvError("REQUESTS_NODES: not understood; use node2=mongodb://... node3=...")
        if name in nodes:
            raise EnvError(f"REQUESTS_NODES: the node {name} is there twice")
        nodes[name] = _checked(f"REQUESTS_NODES: {name}", address)
    return nodes


def request_prefix(env: Env) -> str:
    """Return the prefix of databases of bizzes."""
    prefix = env.str("REQUESTS_PREFIX", default="crawlyard")
    if not _PREFIX.fullmatch(prefix):
        raise EnvError("REQUESTS_PREFIX: use a-z and 0-9, at most 16, a letter first")
    return prefix


def scale_webhook(env: Env) -> tuple[str, str]:
    """Return the URL that gets the wanted number of fetchers, and its signing secret."""
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
