"""REST of an installation, as an integrator calls it: real HTTP, a token, JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

_TIMEOUT_SECONDS = 60.0


def send(
    url: str, *, method: str, body: bytes | None, headers: dict[str, str]
) -> tuple[int, dict[str, str], bytes]:
    """One HTTP request; status, headers and body of whatever answer comes."""
    request = Request(url, data=body, headers=headers, method=method)  # noqa: S310 - http only
    try:
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            return answer.status, dict(answer.headers), answer.read()
    except HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


class Rest:
    """Calls below ``/api/v1``. Every call names the status it expects; another one fails the test.

    Args:
        address: ``http://127.0.0.1:8000``.
        explain: what to print when a call or a wait fails, such as the logs of the daemons.
    """

    def __init__(self, address: str, token: str, explain: Callable[[], str]) -> None:
        self.address = address
        # Of every call.
        self.headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._explain = explain

    def call(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        headers = dict(self.headers)
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        url = f"{self.address}/api/v1{path}"
        code, _headers, answer = send(url, method=method, body=data, headers=headers)
        said = answer.decode(errors="replace")
        assert code == status, f"{method} {path}: {code} {said[:3000]}\n{self._explain()}"
        return json.loads(said) if said else None

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", f"{path}?{urlencode(query, doseq=True)}" if query else path)

    def rows(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """The first page of a list."""
        rows: list[dict[str, Any]] = self.get(path, **query)["results"]
        return rows

    def make(self, path: str, **values: Any) -> Any:
        """POST that makes something."""
        return self.call("POST", path, values, status=201)

    def act(self, path: str, *, status: int = 200, **values: Any) -> Any:
        """POST of an action."""
        return self.call("POST", path, values, status=status)

    def change(self, path: str, **values: Any) -> Any:
        return self.call("PATCH", path, values)

    def ended(self, run: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The row of a run and its books, once it has ended and all of it is told."""

        def over() -> dict[str, Any] | None:
            row: dict[str, Any] = self.get(f"/runs/{run}")
            return row if row["ended_at"] else None

        def told() -> dict[str, Any] | None:
            books: dict[str, Any] = self.get(f"/runs/{run}/counters")
            return books if books["final"] else None

        row = self.until(over, f"the end of run {run}")
        return row, self.until(told, f"the last report of run {run}")

    def until(self, happened: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
        """Ask until it is true; what it was then."""
        deadline = time.monotonic() + seconds
        while not (answer := happened()):
            assert time.monotonic() < deadline, (
                f"{what}: not within {seconds:g} s\n{self._explain()}"
            )
            time.sleep(0.1)
        return answer
