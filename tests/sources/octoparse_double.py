"""Test server with the part of Octoparse's API that collector and vendor client use.

Strict: an unknown path is 501, a request without a token 401, one over the rate limit 429 (a leaky
bucket as the vendor describes it). ``python -m tests.sources.octoparse_double`` runs it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web

TASK = "34fe9e1a-28f5-4f3f-8d1e-6ba5d0c1a2b3"
USER, PASSWORD = "collector", "a&b=c pässword"
LIFE_SECONDS = 86_399
Make = Callable[[int], Any]
# A fault receives the correct response and returns the one to send.
Fault = Callable[[dict[str, Any]], web.Response]


def record(number: int) -> dict[str, Any]:
    """Return record ``number`` of a task, with Chinese texts."""
    return {"编号": number, "title": f"标题 {number}", "date": "2026-01-15 10:00:00"}


class OctoparseDouble:
    """One task with ``total`` records, created on request by ``make``."""

    def __init__(
        self,
        total: int = 0,
        make: Make = record,
        *,
        latency: float = 0.0,
        limit: float | None = None,
        burst: float = 100.0,
    ) -> None:
        self.total = total
        self.make = make
        self.latency = latency
        self.limit = limit
        self.burst = burst
        self.life_seconds: float = LIFE_SECONDS
        self.most_a_page = 1000
        self.asked: list[tuple[int, int]] = []
        self.times: list[float] = []
        self.logins: list[str] = []
        self.refused = 0
        self.most_at_once = 0
        self._at_once = 0
        self.marks = 0
        self.faults: deque[Fault] = deque()
        self.exported = 0
        self.marks_work = True
        self._exporting = 0
        self._tokens: dict[str, float] = {}
        self._refresh: set[str] = set()
        self._level = 0.0
        self._level_at = 0.0
        self.url = ""

    # --- what tests do ------------------------------------------------------------------------

    def revoke(self) -> None:
        """Invalidate all tokens and refresh tokens."""
        self._tokens.clear()
        self._refresh.clear()

    def spoil(self, *faults: Fault) -> None:
        """Apply these faults to the next responses with data."""
        self.faults.extend(faults)

    # --- the protocol -------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.Response:
        """Handle one request."""
        body = await request.read()
        self.times.append(time.monotonic())
        over = self._over_limit()
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(self.latency)
        self._at_once -= 1
        if over:
            self.refused += 1
            return web.json_response(
                {"error": "quota exceeded"}, status=429, headers={"Retry-After": "1"}
            )
        route = (request.method, request.path.lower())
        if route == ("POST", "/token"):
            return self._token(request, body)
        if self._tokens.get(request.headers.get("Authorization", "")[7:], 0) <= time.monotonic():
            return web.json_response({"message": "Authorization has been denied"}, status=401)
        answer = {
            ("GET", "/api/alldata/getdataoftaskbyoffset"): self._by_offset,
            ("GET", "/api/notexportdata/gettop"): self._top,
            ("POST", "/api/notexportdata/update"): self._mark,
            ("GET", "/data/all"): self._open_all,
        }.get(route)
        if answer is None:
            return web.json_response({"error": "not in this double"}, status=501)
        if request.query.get("taskId") != TASK:
            return _json({"data": None, "error": "task_invalid", "error_Description": "no task"})
        good = answer(request)
        return self.faults.popleft()(good) if self.faults else _json(good)

    def _by_offset(self, request: web.Request) -> dict[str, Any]:
        offset, size = int(request.query["offset"]), int(request.query["size"])
        if offset < 0 or not 1 <= size <= 1000:
            return {"data": None, "error": "parameter_invalid", "error_Description": "size"}
        self.asked.append((offset, size))
        numbers = range(offset, min(self.total, offset + min(size, self.most_a_page)))
        after = numbers.stop if numbers else offset
        return {
            "data": {
                "offset": after,
                "total": self.total,
                "restTotal": max(0, self.total - after),
                "dataList": [self.make(number) for number in numbers],
            },
            "error": "success",
            "error_Description": "Action Success",
        }

    def _open_all(self, request: web.Request) -> dict[str, Any]:
        data = self._by_offset(request)["data"]
        data["data"] = data.pop("dataList")
        return {"data": data, "requestId": secrets.token_hex(8)}

    def _top(self, request: web.Request) -> dict[str, Any]:
        size = int(request.query["size"])
        numbers = range(self.exported, min(self.total, self.exported + size))
        self._exporting = numbers.stop if numbers else self.exported
        return {
            "data": {
                "total": self.total,
                "currentTotal": len(numbers),
                "dataList": [self.make(number) for number in numbers],
            },
            "error": "success",
            "error_Description": "Action Success",
        }

    def _mark(self, request: web.Request) -> dict[str, Any]:
        self.marks += 1
        if self.marks_work:
            self.exported = max(self.exported, self._exporting)
        return {"data": None, "error": "success", "error_Description": "Action Success"}

    def _token(self, request: web.Request, body: bytes) -> web.Response:
        if request.content_type == "application/json":
            form = {str(key): str(value) for key, value in json.loads(body).items()}
        else:
            form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        kind = form.get("grant_type", "")
        self.logins.append(kind)
        good = kind == "password" and (form.get("username"), form.get("password")) == (
            USER,
            PASSWORD,
        )
        if kind == "refresh_token" and form.get("refresh_token") in self._refresh:
            self._refresh.discard(form["refresh_token"])
            good = True
        if not good:
            return web.json_response(
                {"error": "invalid_grant", "error_description": "The user name is incorrect."},
                status=400,
            )
        token, refresh = secrets.token_hex(16), secrets.token_hex(16)
        self._tokens[token] = time.monotonic() + self.life_seconds
        self._refresh.add(refresh)
        return web.json_response(
            {
                "access_token": token,
                "token_type": "bearer",
                "expires_in": self.life_seconds,
                "refresh_token": refresh,
            }
        )

    def _over_limit(self) -> bool:
        if self.limit is None:
            return False
        now = time.monotonic()
        self._level = max(0.0, self._level - (now - self._level_at) * self.limit)
        self._level_at = now
        if self._level + 1 > self.burst:
            return True
        self._level += 1
        return False


def _json(data: Any) -> web.Response:
    return web.Response(
        body=json.dumps(data, ensure_ascii=False).encode(), content_type="application/json"
    )


# --- faults ---------------------------------------------------------------------------------------


def status(code: int, **headers: str) -> Fault:
    """Fault: this status with a body that is not JSON."""
    return lambda good: web.Response(status=code, text="busy", headers=headers)


def html(good: dict[str, Any]) -> web.Response:
    """Fault: an HTML page with status 200."""
    return web.Response(text="<!DOCTYPE html><html>maintenance</html>", content_type="text/html")


def half(good: dict[str, Any]) -> web.Response:
    """Fault: truncated JSON."""
    whole = json.dumps(good).encode()
    return web.Response(body=whole[: len(whole) // 2], content_type="application/json")


def instead(**data: Any) -> Fault:
    """Fault: other values in ``data``."""
    return lambda good: _json({**good, "data": {**good["data"], **data}})


def as_data(data: Any) -> Fault:
    """Fault: another JSON document."""
    return lambda good: _json(data)


# --- serving --------------------------------------------------------------------------------------


@contextmanager
def serving(double: OctoparseDouble) -> Iterator[OctoparseDouble]:
    """Serve ``double`` in a thread at ``double.url``."""
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def start() -> web.AppRunner:
        runner = await _runner(double)
        started.set()
        return runner

    def serve() -> None:
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve, name="octoparse double", daemon=True)
    thread.start()
    if not started.wait(10):
        raise RuntimeError("the double does not start")
    try:
        yield double
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


async def _runner(double: OctoparseDouble) -> web.AppRunner:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", double.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    double.url = f"http://{host}:{port}"
    return runner


def main() -> None:
    """Print the URL as the first line, then serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--total", type=int, required=True)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--limit", type=float)
    given = parser.parse_args()
    double = OctoparseDouble(given.total, latency=given.latency, limit=given.limit)
    with serving(double):
        sys.stdout.write(double.url + "\n")
        sys.stdout.flush()
        sys.stdin.read()
        sys.stdout.write(json.dumps({"asked": len(double.asked), "refused": double.refused}))


if __name__ == "__main__":
    main()
