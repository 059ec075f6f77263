"""URLs in parameters: what is wrong with one, said without its password."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

# {redis_url} and the like are filled in from outside, when the rules go into force (seed S2.14).
_PLACEHOLDER: Final = re.compile(r"\{[A-Za-z_]\w*\}")
_HIDDEN: Final = "****"


def has_placeholder(value: object) -> bool:
    """Whether part of the value is only known later."""
    return isinstance(value, str) and _PLACEHOLDER.search(value) is not None


def url_problem(url: str, schemes: tuple[str, ...]) -> str:
    """Why this is no URL of one of the schemes, or ""; never shows user or password."""
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


def masked(url: str) -> str:
    """The URL with **** for its password and for passwords among its options."""
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return _HIDDEN
    if password:
        user, _at, host = parts.netloc.rpartition("@")
        parts = parts._replace(netloc=f"{user.partition(':')[0]}:{_HIDDEN}@{host}")
    query = re.sub(r"(?i)(password|secret|token)=[^&]*", rf"\1={_HIDDEN}", parts.query)
    return parts._replace(query=query).geturl()


def without_secrets(text: str, url: str) -> str:
    """``text`` of some library, which may quote the URL or its password."""
    text = text.replace(url, masked(url))
    try:
        password = urlsplit(url).password
    except ValueError:
        return text
    for secret in filter(None, {password, unquote(password or "")}):
        text = text.replace(secret, _HIDDEN)
    return text
