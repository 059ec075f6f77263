"""Parsing of ``sqlite:///path/to/file``."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from yardkit.broker.base import BadBrokerURL

_FORM = "use sqlite:///path/to/file"


def parse_sqlite_url(url: str) -> Path:
    """Return the absolute path of the file; ``sqlite:////path`` is equivalent.

    Raises:
        BadBrokerURL: no path, a host, a query, a memory database or a folder.
    """
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc:
        raise BadBrokerURL(f"{url!r} has a host ({parts.netloc}); {_FORM}, with three slashes")
    if parts.query or parts.fragment:
        raise BadBrokerURL(f"{url!r} has options after the path, there are none; {_FORM}")
    if ":memory:" in path:
        raise BadBrokerURL(f"{url!r} lives in the memory of one process; {_FORM}")
    if not path.startswith("/") or not path.strip("/") or "\0" in path:
        raise BadBrokerURL(f"{url!r} has no absolute path; {_FORM}")
    file = Path("/" + path.lstrip("/"))
    if path.endswith("/") or file.is_dir():
        raise BadBrokerURL(f"{url!r} is a folder; {_FORM}")
    return file
