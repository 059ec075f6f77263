"""bench logs: lines from messages into each log store, beside the same rows copied into its tables.

Each store has an installation of its own in a process of its own, and each scale begins anew. Ours
does all that the ingester does with a message: read it, find its run, judge each line, store what
is new with its words, count, and note kinds of errors. The peer is given the finished rows, and
writes them in transactions of the same size into tables with the same indexes.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
from django.conf import settings

from tools.benches.logs_clerk import Task
from tools.benches.measuring import BenchFailed, conditions, helper, line_of, module
from tools.benches.router_stores import own_database

LINES: Final = 200_000
AIM: Final = 10_000
MOST_TIMES_PEER: Final = 1.5


def run(*, lines: int, scales: Sequence[int], peer: bool, servers: bool) -> dict[str, Any]:
    """``lines`` lines times each of ``scales`` through each store; the JSON object.

    ``servers``: also through PostgreSQL of the settings.

    Raises:
        BenchFailed: a server is missing, or not every line can be found afterwards.
    """
    before = conditions()
    if servers and not settings.DATABASE_URL.startswith(("postgres://", "postgresql://")):
        raise BenchFailed("DATABASE_URL must be postgresql://... with --engines configured")
    kinds = ["embedded", *(["postgresql"] if servers else [])]
    steps = [
        _measure(kind, lines * scale, peer=peer and scale == scales[0])
        for kind in kinds
        for scale in scales
    ]
    first = [next(one for one in steps if one["store"] == kind) for kind in kinds]
    times = [one["times_peer"] for one in first if one["times_peer"]]
    used = [AIM / first[0]["lines_per_second"], *(one / MOST_TIMES_PEER for one in times)]
    return {
        "bench": "logs",
        "through": "store_lines",
        "versions": {name: version(name) for name in ("psycopg", "msgspec", "django")},
        **before,
        "ours": {"stores": [_plain(one) for one in first]},
        "peer": {
            "copied": [{"store": one["store"], **one["peer"]} for one in first if one["peer"]]
        },
        # Of the store that loses most.
        "ratio": round(1 / max(times), 3) if times else None,
        "limit": {"lines_per_second": AIM, "times_peer": MOST_TIMES_PEER},
        "limit_ratio": round(max(used), 3),
        "growth": {
            "steps": [_plain(one) for one in steps],
            "cost_ratio": {one["store"]: _growth(steps, one["store"]) for one in first},
        },
    }


def _plain(step: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in step.items() if name != "peer"}


def _growth(steps: Sequence[Mapping[str, Any]], store: str) -> float:
    """What a line costs at the largest scale, by the wall clock, against the smallest."""
    rates: list[float] = [one["lines_per_second"] for one in steps if one["store"] == store]
    return round(rates[0] / rates[-1], 2)


def _measure(kind: str, lines: int, *, peer: bool) -> dict[str, Any]:
    with _installation(kind) as (environment, beside):
        task = Task(lines=lines, peer=beside if peer else "")
        with helper(module("tools.benches.logs_clerk"), environment) as clerk:
            assert clerk.stdin is not None  # noqa: S101 - helper() asks for a pipe
            clerk.stdin.write(msgspec.json.encode(task).decode() + "\n")
            clerk.stdin.flush()
            found: dict[str, Any] = msgspec.json.decode(line_of(clerk))
    if found["lost"]:
        raise BenchFailed(f"{kind}: {found['lost']} of {lines} lines cannot be found")
    copied = found.pop("peer")
    times = round(copied["lines_per_second"] / found["lines_per_second"], 2) if copied else None
    return {"store": kind, "times_peer": times, **found, "peer": copied}


@contextmanager
def _installation(kind: str) -> Iterator[tuple[dict[str, str], str]]:
    """Settings of one that is empty, and the address of a store beside; all taken away later."""
    folder = Path(tempfile.mkdtemp(prefix="crawlyard-bench-"))
    prefix = f"crawlyard_bench_{secrets.token_hex(4)}"
    # Nothing of this process's settings is meant, but the server named here.
    names = ("DATABASE_URL", "BROKER_URL", "REDIS_URL", "REQUESTS_URL", "LOGS_URL")
    environment = dict.fromkeys(names, "") | {"CRAWLYARD_DATA": str(folder)}
    try:
        with ExitStack() as stack:
            beside = f"sqlite://{folder}/peer"
            if kind == "postgresql":
                environment["DATABASE_URL"] = stack.enter_context(own_database(prefix))
                beside = stack.enter_context(own_database(f"{prefix}_peer"))
            yield environment, beside
    finally:
        shutil.rmtree(folder)
