"""Resolves the names that Scrapy's tests resolve to this machine, in agents.

``suite.py`` copies it as ``sitecustomize.py``.
"""

import socket
from typing import Any

_NAMES = ("xn--i-7iq.ws", "foo_bar.example")
_resolve = socket.getaddrinfo


def _getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
    return _resolve("127.0.0.1" if host in _NAMES else host, *arguments, **options)


socket.getaddrinfo = _getaddrinfo
