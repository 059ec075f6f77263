"""A record API as Octoparse offers it, on this machine: a fixed latency and a limit of requests.

``python -m tools.benches.record_api TOTAL LATENCY LIMIT`` writes its address and serves until
its input closes. ``GET /stats`` says what it was asked.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, Final

import msgspec
from aiohttp import web

TASK: Final = "bench"
USER: Final = "bench"
PASSWORD: Final = "bench"  # noqa: S105 - of nobody
# The vendor lets so many through at once before it refuses (seed S0.40).
BURST: Final = 100.0


class RecordApi:
    """``total`` records; ``limit`` requests a second, 0 is without limit."""

    def __init__(self, total: int, latency: float, limit: float) -> None:
        self._total = total
        self._latency = latency
        self._limit = limit
        self._level = self._level_at = 0.0
        self._asked = self._refused = 0
        self._first_at = 0.0

    async def handle(self, request: web.Request) -> web.Response:
        """Every request but that for the numbers."""
        self._asked += 1
        self._first_at = self._first_at or time.time()
        await asyncio.sleep(self._latency)
        if self._is_over():
            self._refused += 1
            return web.Response(status=429, headers={"Retry-After": "1"})
        if request.path == "/token":
            return _json({"access_token": "t", "expires_in": 86_399, "token_type": "bearer"})
        offset, size = int(request.query["offset"]), int(request.query["size"])
        numbers = range(offset, min(self._total, offset + size))
        data = {
            "offset": numbers.stop,
            "total": self._total,
            "restTotal": self._total - numbers.stop,
            "dataList": [_record(number) for number in numbers],
        }
        return _json({"data": data, "error": "success", "error_Description": ""})

    async def stats(self, request: web.Request) -> web.Response:
        """What was asked, when it began, and how many of the requests were over the limit."""
        return _json({"asked": self._asked, "refused": self._refused, "first_at": self._first_at})

    def _is_over(self) -> bool:
        if not self._limit:
            return False
        now = time.monotonic()
        self._level = max(0.0, self._level - (now - self._level_at) * self._limit)
        self._level_at = now
        if self._level + 1 > BURST:
            return True
        self._level += 1
        return False


def _record(number: int) -> dict[str, Any]:
    return {
        "编号": number,
        "标题": f"第 {number} 条招聘信息:数据采集工程师",
        "链接": f"https://jobs.example/{number}",
        "公司": "某某科技有限公司",
        "薪资": "15-25K·14薪",
        "正文": "负责数据采集系统的设计与开发。" * 8,
        "发布时间": "2026-01-15 10:00:00",
    }


def _json(data: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(data), content_type="application/json")


async def serve(total: int, latency: float, limit: float) -> None:
    """Until the input closes."""
    api = RecordApi(total, latency, limit)
    app = web.Application()
    app.router.add_get("/stats", api.stats)
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    sys.stdout.write(f"http://{host}:{port}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))
