"""bench requests: stored, queued, taken and finished in batches, beside the same one by one.

Each store has an installation of its own in a process of its own, and each scale begins anew. The
seed's own aim is 10 million requests a day, 116 a second.
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

from tools.benches.measuring import BenchFailed, conditions, helper, line_of, module
from tools.benches.requests_clerk import Task
from tools.benches.router_stores import own_database, own_keys

REQUESTS: Final = 200_000
BATCH: Final = 1000
BYTES: Final = 500
# One by one so many times fewer.
NAIVE_PART: Final = 100
PATENT_PER_SECOND: Final = 116
AIM: Final = 50 * PATENT_PER_SECOND
AIM_NAIVE: Final = 5


def run(
    *, requests: int, scales: Sequence[int], store: str, peer: bool, servers: bool
) -> dict[str, Any]:
    """``requests`` requests times each of ``scales`` through each store; the JSON object.

    ``store``: address of one more storage node, such as a mongodb:// one. ``servers``: also
    through PostgreSQL and Redis of the settings.

    Raises:
        BenchFailed: a server is missing, or not every request has ended as it should.
    """
    before = conditions()
    if servers:
        _check_servers()
    steps: list[dict[str, Any]] = []
    kinds = ["embedded", *(["postgresql_redis"] if servers else []), *(["given"] if store else [])]
    for kind in kinds:
        for scale in scales:
            naive = max(20, requests // NAIVE_PART) if peer and scale == scales[0] else 0
            steps.append(_measure(kind, store, requests * scale, naive))
    first = [next(one for one in steps if one["store"] == kind) for kind in kinds]
    slowest = min(one["requests_per_second"] for one in first)
    return {
        "bench": "requests",
        "through": "Yard",
        "batch": BATCH,
        "bytes": BYTES,
        "versions": {name: version(name) for name in ("psycopg", "redis", "pymongo", "msgspec")},
        **before,
        "ours": {"stores": [_plain(one) for one in first]},
        "peer": {
            "patent_per_second": PATENT_PER_SECOND,
            "naive": [{"store": one["store"], **one["naive"]} for one in first if one["naive"]],
        },
        # Of the store that gains least.
        "ratio": min((one["times_naive"] for one in first), default=None) if peer else None,
        "limit": {"requests_per_second": AIM, "times_naive": AIM_NAIVE},
        "limit_ratio": round(AIM / slowest, 3),
        "growth": {
            "steps": [_plain(one) for one in steps],
            "cost_ratio": {one["store"]: _growth(steps, one["store"]) for one in first},
        },
    }


def _plain(step: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in step.items() if name != "naive"}


def _growth(steps: Sequence[Mapping[str, Any]], store: str) -> float:
    """What a request costs at the largest scale, by the wall clock, against the smallest."""
    rates: list[float] = [one["requests_per_second"] for one in steps if one["store"] == store]
    return round(rates[0] / rates[-1], 2)


def _measure(kind: str, store: str, requests: int, naive: int) -> dict[str, Any]:
    task = Task(requests=requests, naive=naive, batch=BATCH, bytes=BYTES)
    with _installation(kind, store) as environment:
        argv = module("tools.benches.requests_clerk")
        with helper(argv, environment) as clerk:
            assert clerk.stdin is not None  # noqa: S101 - helper() asks for a pipe
            clerk.stdin.write(msgspec.json.encode(task).decode() + "\n")
            clerk.stdin.flush()
            found: dict[str, Any] = msgspec.json.decode(line_of(clerk))
    if found["lost"]:
        raise BenchFailed(f"{kind}: {found['lost']} of {requests + naive} requests are not done")
    rate = found["requests_per_second"]
    peer = found["naive"] and found["naive"]["requests_per_second"]
    return {
        "store": kind,
        "times_patent": round(rate / PATENT_PER_SECOND, 1),
        "times_naive": round(rate / peer, 1) if peer else None,
        **found,
    }


@contextmanager
def _installation(kind: str, store: str) -> Iterator[dict[str, str]]:
    """Settings of one that is empty; taken away afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="crawlyard-bench-"))
    prefix = f"bench{secrets.token_hex(4)}"
    # Nothing of this process's settings is meant, but the servers named here.
    names = ("DATABASE_URL", "BROKER_URL", "REDIS_URL", "REQUESTS_URL", "REQUESTS_NODES")
    environment = dict.fromkeys(names, "") | {
        "CRAWLYARD_DATA": str(folder),
        "REQUESTS_PREFIX": prefix,
        "REDIS_PREFIX": prefix,
    }
    try:
        with ExitStack() as stack:
            if kind == "given":
                environment["REQUESTS_URL"] = store
            if kind == "postgresql_redis":
                database = stack.enter_context(own_database(prefix))
                stack.enter_context(own_keys(prefix))
                environment |= {
                    "DATABASE_URL": database,
                    "REQUESTS_URL": database,
                    "REDIS_URL": settings.REDIS_URL,
                }
            yield environment
    finally:
        shutil.rmtree(folder)


def _check_servers() -> None:
    if not settings.DATABASE_URL.startswith(("postgres://", "postgresql://")):
        raise BenchFailed("DATABASE_URL must be postgresql://... with --engines configured")
    if not settings.REDIS_URL:
        raise BenchFailed("REDIS_URL must be redis://... with --engines configured")
