"""REST client: one session, retries with idempotency keys, errors in the server's words."""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import quote

from yardcli.errors import CommandFailed, Exits, ServerRefused
from yardcli.profiles import Login

if TYPE_CHECKING:
    import requests

# Seconds between attempts; a server's ``Retry-After`` is obeyed up to a limit.
WAITS: Final = (0.5, 1.0, 2.0, 4.0)
LONGEST_WAIT: Final = 60.0
TIMEOUT: Final = (5.0, 60.0)
PASSING: Final = frozenset({429, 502, 503, 504})
MOST_IN_A_PAGE: Final = 200
_CHUNK_BYTES: Final = 256 * 1024
_LANGUAGE = re.compile(r"([a-z]{2,3})(?:_([A-Z]{2}))?(?:[.@].*)?")


class Client:
    """Client of one server with one token."""

    def __init__(self, login: Login, *, tell: Callable[[str], None] | None = None) -> None:
        """``tell`` gets a line of text when a call has to be repeated."""
        # Imported late: takes half of the time of a short command.
        import requests

        self._errors = requests.exceptions
        self._server = login.server
        self._tell = tell or (lambda _line: None)
        self._session = requests.Session()
        # As an authenticator: a ~/.netrc would replace a header.
        self._session.auth = _bearer(login.token)
        self._session.headers.update(
            {
                "Accept": "application/json",
                "Accept-Language": language_of(os.environ),
                "User-Agent": "crawlyard-cli",
            }
        )

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def get(self, path: str, **query: Any) -> Any:
        """Return the answer at ``path`` below /api/v1/; None is left out of the query."""
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        """POST, repeated with the same idempotency key when no answer arrives."""
        return self.call("POST", path, body=body, query=query)

    def patch(self, path: str, body: Any) -> Any:
        """Change some fields."""
        return self.call("PATCH", path, body=body)

    def delete(self, path: str) -> None:
        """Send a DELETE request."""
        self.call("DELETE", path)

    def rows(self, path: str, limit: int | None, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield the rows of a list, page after page, up to ``limit`` (``None``: all)."""
        after: str | None = None
        left = limit
        while left is None or left > 0:
            size = MOST_IN_A_PAGE if left is None else min(left, MOST_IN_A_PAGE)
            page = self.get(path, **query, limit=size, after=after)
            page_rows = page["results"]
            yield from page_rows
            after = page["next"]
            if after is None:
                return
            left = None if left is None else left - len(page_rows)

    def upload(self, path: str, file: BinaryIO, content_type: str) -> Any:
        """POST the bytes of a file; a retry starts at its beginning."""
        start = file.tell() if file.seekable() else None

        def body() -> BinaryIO:
            if start is not None:
                file.seek(start)
            return file

        headers = {"Content-Type": content_type}
        return self.call("POST", path, headers=headers, data=body, repeat=start is not None)

    def stream(self, path: str, **query: Any) -> Iterator[bytes]:
        """Yield the content at ``path`` as it arrives. Raises ``CommandFailed``."""
        address = f"{self._server}/api/v1/{quote(path, safe='/-_.~')}"
        size = 0
        try:
            with self._session.get(
                address,
                params=_asked(query),
                headers={"Accept": "*/*"},
                timeout=TIMEOUT,
                allow_redirects=False,
                stream=True,
            ) as response:
                if response.status_code != 200:
                    _read(response)
                for chunk in response.iter_content(_CHUNK_BYTES):
                    size += len(chunk)
                    yield chunk
        except self._errors.RequestException as error:
            begun = f"broke off after {size:,} bytes" if size else "does not answer"
            text = f"{self._server} {begun}: {_reason(error)}"
            raise CommandFailed(Exits.UNREACHABLE, text) from error

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        data: Callable[[], BinaryIO] | None = None,
        repeat: bool = True,
    ) -> Any:
        """Return the decoded answer, None for an empty one. Raises ``CommandFailed``."""
        sent = dict(headers or {})
        content: Any = None
        if method == "POST":
            sent.setdefault("Idempotency-Key", str(uuid.uuid4()))
        if body is not None:
            content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
            sent["Content-Type"] = "application/json"
        waits = list(WAITS) if repeat else []
        while True:
            try:
                response = self._session.request(
                    method,
                    f"{self._server}/api/v1/{quote(path.lstrip('/'), safe='/-_.~')}",
                    params=_asked(query or {}),
                    data=content if data is None else data(),
                    headers=sent,
                    timeout=TIMEOUT,
                    # Never send the token to another server.
                    allow_redirects=False,
                )
            except self._errors.RequestException as error:
                if not waits or not _passes(error, self._errors):
                    text = f"{self._server} does not answer: {_reason(error)}"
                    raise CommandFailed(Exits.UNREACHABLE, text) from error
                self._wait(waits.pop(0), _reason(error))
                continue
            wait = retry_after(response.headers.get("Retry-After"))
            if response.status_code in PASSING and waits and wait <= LONGEST_WAIT:
                self._wait(max(waits.pop(0), wait), f"{response.status_code}")
                continue
            return _read(response)

    def _wait(self, seconds: float, why: str) -> None:
        self._tell(f"{self._server}: {why}; trying again in {seconds:g} s")
        time.sleep(seconds)


def language_of(environ: Mapping[str, str]) -> str:
    """Return ``Accept-Language`` for the shell's locale: ``zh-CN`` for ``zh_CN.UTF-8``."""
    names = (environ.get(name, "") for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    matched = _LANGUAGE.fullmatch(next(filter(None, names), ""))
    return "en" if matched is None else "-".join(filter(None, matched.groups()))


def retry_after(header: str | None) -> float:
    """Return the seconds; 0 without the header or for another form of it."""
    return float(header) if header and header.isascii() and header.isdigit() else 0.0


def _bearer(token: str) -> Any:
    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    return sign


def _asked(query: Mapping[str, Any]) -> dict[str, Any]:
    """Return query parameters without None, booleans in lower case."""
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
        if value not in (None, "", [])
    }


def _passes(error: Exception, errors: Any) -> bool:
    # A wrong certificate or address does not become valid by a retry.
    lasting = (errors.SSLError, errors.InvalidURL, errors.InvalidHeader, errors.MissingSchema)
    return not isinstance(error, lasting)


def _reason(error: BaseException) -> str:
    # The libraries wrap the system's error in several layers.
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror
        args = [arg for arg in inner.args if isinstance(arg, BaseException)]
        inner = getattr(inner, "reason", None) or (args[0] if args else inner.__context__)
        if not isinstance(inner, BaseException):
            break
    return str(error).partition("\n")[0]


def _read(response: requests.Response) -> Any:
    if response.status_code in (204, 304):
        return None
    is_json = "json" in response.headers.get("Content-Type", "")
    try:
        answer = response.json() if is_json else response.text
    except ValueError:
        is_json, answer = False, ""
    if 200 <= response.status_code < 300:
        return answer
    if 300 <= response.status_code < 400:
        where = response.headers.get("Location", "elsewhere")
        text = f"the server sends us to {where}; log in there if that is right"
        raise CommandFailed(Exits.UNREACHABLE, text)
    if not is_json or not isinstance(answer, dict) or "detail" not in answer:
        request = response.headers.get("X-Request-Id", "")
        raise ServerRefused(
            response.status_code, "no_json", response.reason or "error", {}, request
        )
    raise ServerRefused(
        response.status_code,
        str(answer.get("code", "error")),
        str(answer["detail"]),
        answer.get("fields") or {},
        str(answer.get("request_id", "")),
    )
