"""Rows of requests to test with."""

from __future__ import annotations

from typing import Any

from apps.jobs.models import Run
from tests.datasets.factories import store

SECRET = "session=s3cret"


def make_request(number: int, **fields: Any) -> dict[str, Any]:
    """Row of a successful request."""
    return {
        "id": number,
        "url": f"https://shop.example/p/{number}",
        "host": "shop.example",
        "method": "GET",
        "outcome": "success",
        "status": 200,
        "attempts": 1,
        "elapsed_ms": 10 * number,
        "bytes": 100 + number,
        "depth": 1,
        "items": 2,
        "agent": "agent-1",
        "callback": "parse",
        **fields,
    }


def make_failure(number: int, **fields: Any) -> dict[str, Any]:
    """Row of a request whose callback has failed."""
    url = f"https://shop.example/p/{number}"
    return (
        make_request(
            number,
            outcome="failed",
            items=0,
            kind="callback",
            error="callback parse raised ValueError: no price (shop.py:12)",
            group="ValueError: no price (shop.py:12 parse)",
            traceback="Traceback (most recent call last):\nValueError: no price",
            request={"url": url, "callback": "", "headers": [["Cookie", SECRET]]},
        )
        | fields
    )


def store_requests(run: Run, rows: list[dict[str, Any]], **fields: Any) -> None:
    """Store rows of requests as the run sends them."""
    store(run, rows, producer=f"requests:{run.pk}", url="", **fields)
