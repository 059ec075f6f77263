"""Validation of the URLs of git servers and registries, against SSRF.

``check_clone_url`` is called twice: without name resolution when a URL is saved, and with a
resolver right before each use. Connections use the resolved addresses, which prevents DNS
rebinding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from apps.projects.engine.refusals import ProjectInputError
from yardkit.addresses import AddressFault, Network, Resolve, check_address

CLONE_SCHEMES: Final = {"https": 443, "http": 80, "ssh": 22}
REGISTRY_SCHEMES: Final = {"https": 443, "http": 80}
MAX_URL: Final = 500
# No spaces, quotes, percent escapes or shell metacharacters.
_PATH = re.compile(r"/(?:[^\W_]|[._~+@=,/-]|_)*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_SCP = re.compile(r"(?P<user>[\w.-]+)@(?P<host>[\w.-]+):(?P<path>[^/:][^:]*)")
_DOCKER_REPOSITORY = re.compile(
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
)


class AddressProblem(ProjectInputError):
    """The URL is not allowed; ``code`` is the reason."""


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """Parsed URL. ``addresses`` is empty if names were not resolved."""

    url: str
    scheme: str
    host: str
    port: int
    path: str
    user: str = ""
    addresses: tuple[str, ...] = ()

    @property
    def authority(self) -> str:
        """Host with optional port, such as ``host:5000``, as in image names and Host headers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {**CLONE_SCHEMES, **REGISTRY_SCHEMES}[self.scheme]
        return host if self.port == usual else f"{host}:{self.port}"


def check_clone_url(
    url: str, *, allowed_networks: Sequence[str | Network] = (), resolve: Resolve | None = None
) -> RemoteAddress:
    """Return the parsed URL of a git repository. Raises ``AddressProblem``.

    Args:
        allowed_networks: networks besides public addresses (``GIT_ALLOWED_NETWORKS``).
        resolve: resolver of names (``yardkit.addresses.resolve_name``); None checks only the text.
    """
    scp = _SCP.fullmatch(url)
    if scp and not scp["user"].startswith("-") and not scp["host"].startswith("-"):
        meant = f"ssh://{scp['user']}@{scp['host']}/{scp['path']}"
        raise AddressProblem("url_scp_form", meant=meant)
    address = _parse(url, CLONE_SCHEMES)
    if address.path in ("", "/"):
        raise AddressProblem("url_without_path")
    if any(part.startswith("-") or part == ".." for part in address.path.split("/")):
        raise AddressProblem("url_path", url=address.path)
    return _judged(address, allowed_networks, resolve)


def check_registry_url(
    url: str, *, allowed_networks: Sequence[str | Network] = (), resolve: Resolve | None = None
) -> RemoteAddress:
    """Return the parsed URL of a registry, ``https://host[:port]``. Raises ``AddressProblem``."""
    address = _parse(url, REGISTRY_SCHEMES)
    if address.path not in ("", "/"):
        raise AddressProblem("registry_with_path", host=address.authority)
    return _judged(address, allowed_networks, resolve)


def check_repository(name: str) -> str:
    """Return a valid repository name such as ``team/spiders``. Raises ``AddressProblem``."""
    if len(name) > 255 or not _DOCKER_REPOSITORY.fullmatch(name):
        raise AddressProblem("repository_malformed", name=name)
    return name


def _parse(url: str, schemes: dict[str, int]) -> RemoteAddress:
    if not url or len(url) > MAX_URL:
        raise AddressProblem("url_too_long" if url else "url_empty", limit=MAX_URL)
    if any(character.isspace() or not character.isprintable() for character in url) or "\\" in url:
        raise AddressProblem("url_character")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressProblem("url_malformed") from error
    scheme = parts.scheme.lower()
    if scheme not in schemes or "::" in url.partition("/")[0] or not parts.netloc:
        raise AddressProblem("url_scheme", schemes=", ".join(f"{scheme}://" for scheme in schemes))
    _check_user(parts.username, parts.password, scheme)
    if parts.query or parts.fragment or url.rstrip("/").endswith(("?", "#")):
        raise AddressProblem("url_query")
    host = parts.hostname or ""
    if not host or "%" in parts.netloc or host.startswith("-"):
        raise AddressProblem("url_host")
    if parts.path and not _PATH.fullmatch(parts.path):
        raise AddressProblem("url_path", url=parts.path)
    if port == 0:
        raise AddressProblem("url_malformed")
    return RemoteAddress(
        url=url,
        scheme=scheme,
        host=host,
        port=schemes[scheme] if port is None else port,
        path=parts.path,
        user=parts.username or "",
    )


def _check_user(user: str | None, password: str | None, scheme: str) -> None:
    if password is not None or (user and scheme != "ssh"):
        # A password in the URL would be visible on pages and in the process list.
        raise AddressProblem("url_credentials")
    if user is not None and not _USER.fullmatch(user):
        raise AddressProblem("url_user")


def _judged(
    address: RemoteAddress, networks: Sequence[str | Network], resolve: Resolve | None
) -> RemoteAddress:
    verdict = check_address(
        address.host, allowed_networks=networks, resolve=resolve or _not_looked_up
    )
    if not verdict.accepted:
        if verdict.problem is AddressFault.UNRESOLVED and resolve is None:
            return address
        code = {AddressFault.BLOCKED: "url_blocked", AddressFault.UNRESOLVED: "url_unresolved"}.get(
            verdict.problem, "url_host"
        )
        raise AddressProblem(code, host=address.host, reason=verdict.reason)
    return RemoteAddress(
        url=address.url,
        scheme=address.scheme,
        host=address.host,
        port=address.port,
        path=address.path,
        user=address.user,
        addresses=tuple(verdict.addresses),
    )


def _not_looked_up(name: str) -> list[str]:
    raise OSError(name)
