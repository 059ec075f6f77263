"""Validation of URLs in parameters of inbounds; messages never contain passwords."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

# Placeholders such as {redis_url} are substituted when the rules are activated.
_PLACEHOLDER: Final = re.compile(r"\{[A-Za-z_]\w*\}")


def has_placeholder(value: object) -> bool:
    """Return whether a value contains a placeholder, so that it cannot be validated yet."""
    return isinstance(value, str) and _PLACEHOLDER.search(value) is not None


def url_problem(url: str, schemes: tuple[str, ...]) -> str:
    """Return why a URL is invalid, or ""; the text never contains user name or password."""
    if has_placeholder(url):
        return ""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "the port of the URL is no number up to 65535, or its host is none"
    if parts.scheme not in schemes:
        wanted = " or ".join(f"{scheme}://" for scheme in schemes)
        return f"the URL begins with {wanted}"
    if port == 0:
        return "the port of the URL is 0"
    if parts.scheme != "unix" and not parts.hostname:
        return "the URL names no host"
    return ""
