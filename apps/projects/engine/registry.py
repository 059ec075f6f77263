"""Client of the registry API v2, to list images.

    with RegistryClient(address, repository, username="", password="") as registry:
        registry.tags()         # latest first, then descending, at most 20
        registry.digest("1.2")  # "sha256:..."

The client connects only to checked addresses, follows no redirect, and has one timeout for all
requests together. A registry may refer to another host for a token, as large registries do; that
host is checked in the same way.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode, urljoin, urlsplit

from apps.projects.engine.addresses import AddressProblem, RemoteAddress, check_registry_url
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.engine.tags import IMAGE_DIGEST, IMAGE_TAG
from yardkit.addresses import Network, resolve_name

LATEST: Final = "latest"
MAX_TAGS: Final = 20
# Registries may have thousands of tags, and return them in arbitrary order.
MAX_PAGES: Final = 20
MAX_BYTES: Final = 4 * 1024 * 1024
TIMEOUT_SECONDS: Final = 15.0
_USER_AGENT: Final = "crawlyard"
_MANIFESTS: Final = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
# Anchored at the beginning of a word, to avoid quadratic time on long words.
_CHALLENGE = re.compile(r'(?<![a-z_])([a-z_]++)="([^"]*)"', re.IGNORECASE)
_NUMBER = re.compile(r"(\d+)")


class RegistryProblem(ProjectInputError):
    """The registry does not answer, refuses the request, or sends an invalid answer."""


def is_image_tag(tag: str) -> bool:
    """Return whether the text is a valid image tag."""
    return bool(IMAGE_TAG.fullmatch(tag))


def choices(tags: Sequence[str], limit: int = MAX_TAGS) -> list[str]:
    """Return ``latest`` first, then the tags in descending order, at most ``limit``.

    Digits are compared as numbers: 1.10 comes before 1.9.
    """
    known = {tag for tag in tags if is_image_tag(tag)}
    rest = sorted(known - {LATEST}, key=_sort_key, reverse=True)
    return ([LATEST] * (LATEST in known) + rest)[:limit]


def _sort_key(tag: str) -> tuple[tuple[int, int, str], ...]:
    # Pieces at odd positions are numbers; huge numbers stay texts, since int() is slow on them.
    return tuple(
        (1, int(piece), "") if index % 2 and len(piece) < 20 else (0, 0, piece)
        for index, piece in enumerate(_NUMBER.split(tag))
    )


class RegistryClient:
    """Connection to one repository of a registry. Not thread-safe."""

    def __init__(
        self,
        url: str,
        repository: str,
        *,
        username: str = "",
        password: str = "",
        allowed_networks: Sequence[str | Network] = (),
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._networks = tuple(allowed_networks)
        self._address = check_registry_url(
            url, allowed_networks=self._networks, resolve=resolve_name
        )
        self._repository = repository
        self._username = username
        self._password = password
        self._authorization = ""
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def tags(self, limit: int = MAX_TAGS) -> list[str]:
        """Return the tags in the order of ``choices``. Raises ``RegistryProblem``."""
        tags: list[str] = []
        path = f"/v2/{self._repository}/tags/list?n=1000"
        for _page in range(MAX_PAGES):
            headers, body = self._ask("GET", path)
            tags += _tags_of(body)
            following = _next_page(headers.get("link", ""), path)
            if not following:
                break
            path = following
        return choices(tags, limit)

    def digest(self, tag: str) -> str:
        """Return the digest of an image. Raises ``RegistryProblem``."""
        if not is_image_tag(tag):
            raise RegistryProblem("image_tag_malformed", tag=tag)
        path = f"/v2/{self._repository}/manifests/{tag}"
        headers, _body = self._ask("HEAD", path, {"Accept": _MANIFESTS})
        digest = headers.get("docker-content-digest", "")
        if not IMAGE_DIGEST.fullmatch(digest):
            raise RegistryProblem("registry_no_digest", image=f"{self._repository}:{tag}")
        return digest

    # --- requests ---------------------------------------------------------------------------------

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None
    ) -> tuple[dict[str, str], bytes]:
        """Return headers and body of a response with status 200; get a token first if required."""
        status, answered, body = self._send(method, path, headers)
        if status == 401 and not self._authorization:
            self._authorization = self._answer_challenge(answered.get("www-authenticate", ""))
            status, answered, body = self._send(method, path, headers)
        _check_status(status, self._repository)
        return answered, body

    def _send(
        self, method: str, path: str, headers: Mapping[str, str] | None
    ) -> tuple[int, dict[str, str], bytes]:
        if self._connection is None or self._connection.sock is None:
            # The registry closed the connection. Connect explicitly: http.client would resolve the
            # name again.
            self._connection = self._connect(self._address)
        extra = {"Authorization": self._authorization} if self._authorization else {}
        try:
            return self._exchange(self._connection, method, path, {**(headers or {}), **extra})
        except RegistryProblem:
            self.close()
            raise

    def _answer_challenge(self, challenge: str) -> str:
        """Return the Authorization header for a challenge of the registry."""
        kind = challenge.partition(" ")[0].lower()
        if kind == "basic":
            if not self._username:
                raise RegistryProblem("registry_refused", status=401, error="Basic")
            return _basic(self._username, self._password)
        if kind != "bearer":
            raise RegistryProblem("registry_nonsense", error="WWW-Authenticate")
        values = {name.lower(): value for name, value in _CHALLENGE.findall(challenge)}
        return f"Bearer {self._token(values)}"

    def _token(self, challenge: Mapping[str, str]) -> str:
        realm = challenge.get("realm", "")
        parts = urlsplit(realm)
        if self._address.scheme == "https" and parts.scheme != "https":
            # Refuse: the password would be sent in plain text.
            raise RegistryProblem("registry_nonsense", error="realm")
        address = check_registry_url(
            f"{parts.scheme}://{parts.netloc}",
            allowed_networks=self._networks,
            resolve=resolve_name,
        )
        query = {"scope": f"repository:{self._repository}:pull"}
        if challenge.get("service"):
            query["service"] = challenge["service"]
        headers = (
            {"Authorization": _basic(self._username, self._password)} if self._username else {}
        )
        path = f"{parts.path or '/'}?{urlencode(query)}"
        with contextlib.closing(self._connect(address)) as connection:
            status, _headers, body = self._exchange(connection, "GET", path, headers)
        _check_status(status, self._repository)
        answer = _json_object(body)
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise RegistryProblem("registry_nonsense", error="token")
        return token

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
    ) -> tuple[int, dict[str, str], bytes]:
        try:
            self._set_timeout(connection)
            connection.request(
                method, path, headers={"User-Agent": _USER_AGENT, "Accept": "*/*", **headers}
            )
            response = connection.getresponse()
            body = self._read(connection, response)
            response.close()
        except TimeoutError as error:
            raise self._too_slow() from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RegistryProblem("registry_away", error=_error_text(error)) from error
        return (
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            body,
        )

    def _read(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> bytes:
        """Return the body of a response; the deadline also applies to slow bodies."""
        body = b""
        while True:
            self._set_timeout(connection)
            piece = response.read1(64 * 1024)
            if not piece:
                return body
            body += piece
            if len(body) > MAX_BYTES:
                raise RegistryProblem("registry_too_much", limit=MAX_BYTES)

    def _connect(self, address: RemoteAddress) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(address.authority, timeout=self._left())
        connection.auto_open = 0
        try:
            connection.sock = self._open(address)
        except TimeoutError as error:
            raise self._too_slow() from error
        except OSError as error:
            raise RegistryProblem("registry_away", error=_error_text(error)) from error
        return connection

    def _open(self, address: RemoteAddress) -> socket.socket:
        """Connect to one of the checked addresses, without resolving the name again."""
        last: OSError = OSError("no address")
        for ip in address.addresses:
            try:
                plain = socket.create_connection((ip, address.port), timeout=self._left())
            except OSError as error:
                last = error
                continue
            if address.scheme == "http":
                return plain
            try:
                return ssl.create_default_context().wrap_socket(plain, server_hostname=address.host)
            except OSError:
                plain.close()
                raise
        raise last

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._too_slow()
        return left

    def _set_timeout(self, connection: http.client.HTTPConnection) -> None:
        # None if the registry closed the connection after its response.
        if connection.sock is not None:
            connection.sock.settimeout(self._left())

    def _too_slow(self) -> RegistryProblem:
        return RegistryProblem("registry_too_slow", limit=f"{self._timeout:g}")


def _basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _error_text(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def _check_status(status: int, repository: str) -> None:
    if status == 200:
        return
    if 300 <= status < 400:
        raise RegistryProblem("registry_redirects")
    known = {401: "Unauthorized", 403: "Forbidden", 404: f"Not found: {repository}"}
    text = known.get(status) or http.client.responses.get(status, "?")
    raise RegistryProblem("registry_refused", status=status, error=text)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RegistryProblem("registry_nonsense", error=_error_text(error)) from error
    if not isinstance(value, dict):
        raise RegistryProblem("registry_nonsense", error="no object")
    return value


def _tags_of(body: bytes) -> list[str]:
    tags = _json_object(body).get("tags")
    # null if all tags of the repository were deleted.
    if tags is None:
        return []
    if not isinstance(tags, list):
        raise RegistryProblem("registry_nonsense", error="tags")
    return [tag for tag in tags if isinstance(tag, str)]


def _next_page(link: str, path: str) -> str:
    """Return the path of the next page on the same registry; "" after the last page."""
    match = re.match(r'\s*<([^>]*)>\s*;\s*rel="?next"?', link)
    if match is None:
        return ""
    parts = urlsplit(urljoin(path, match[1]))
    current = urlsplit(path)
    # Accept only a further page of the same list.
    if parts.path != current.path or parts.netloc or parts.scheme:
        return ""
    following = f"{parts.path}?{parts.query}"
    return following if following.isascii() and following.isprintable() else ""


__all__ = ["AddressProblem", "RegistryClient", "RegistryProblem", "choices", "is_image_tag"]
