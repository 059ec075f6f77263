"""Masking of passwords in addresses shown to people."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_HIDDEN: Final = "****"
# Not by ``urlsplit``: a replica set's address names several hosts, each with its port.
_LOGIN: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<login>[^/?#]*)@")
_OPTION: Final = re.compile(r"(?i)((?:password|secret|token|authMechanismProperties)=)([^&#\s]*)")


def masked(url: str) -> str:
    """Return the URL with **** for passwords, also among its options."""

    def hide(found: re.Match[str]) -> str:
        user, colon, _password = found["login"].partition(":")
        return f"{found['scheme']}{user}{':' + _HIDDEN if colon else ''}@"

    return _OPTION.sub(rf"\1{_HIDDEN}", _LOGIN.sub(hide, url, count=1))


def without_secrets(text: str, url: str) -> str:
    """Return a library's ``text`` without the address or password of ``url``."""
    text = text.replace(url, masked(url))
    for secret in _secrets(url):
        text = text.replace(secret, _HIDDEN)
    return text


def _secrets(url: str) -> list[str]:
    login = _LOGIN.match(url)
    secrets = [] if login is None else [login["login"].partition(":")[2]]
    secrets += [value for _name, value in _OPTION.findall(url)]
    # The longest first: one may be part of another.
    return sorted(
        {form for secret in secrets if secret for form in (secret, unquote(secret))}, key=len
    )[::-1]
