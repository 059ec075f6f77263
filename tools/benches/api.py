"""bench api: lists of runs, of stored requests and of log lines, over REST and as pages.

Each database has an installation of its own, in the bench's folder or beside the database of the
settings. Its rows stay for the next time: making a million of each takes minutes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
import psycopg
from django.conf import settings
from psycopg import sql

from tools.benches.api_clerk import Task
from tools.benches.measuring import BenchFailed, conditions, helper, line_of, module

ROWS: Final = 100_000
CALLS: Final = 20
DATABASE: Final = "crawlyard_bench_api"
STEPS: Final = "steps.json"
LIMIT_MS: Final = 300
LIMIT_QUERIES: Final = 12


def run(
    *, rows: int, scales: Sequence[int], servers: bool, calls: int = CALLS, fresh: bool = False
) -> dict[str, Any]:
    """Lists of ``rows`` rows times each of ``scales``; the JSON object.

    ``servers``: also in PostgreSQL of the settings. ``fresh``: begin with no rows. Sizes that are
    exceeded by what is there already are not measured again: their figures are those of that time.

    Raises:
        BenchFailed: the server is missing, or a list was not answered.
    """
    # Before the rows of the embedded one, which take minutes.
    if servers and not settings.DATABASE_URL.startswith(("postgres://", "postgresql://")):
        raise BenchFailed("DATABASE_URL must be postgresql://... with --engines configured")
    before = conditions()
    steps: list[dict[str, Any]] = []
    task = Task(sizes=[rows * scale for scale in scales], calls=calls)
    for kind in ("embedded", *(["postgresql"] if servers else [])):
        with _installation(kind, fresh=fresh) as environment:
            for one in _measure(task, environment):
                _keep({"database": kind, **one}, environment)
            steps += _kept(task, environment)
    largest = [one for one in steps if one["size"] == task.sizes[-1]]
    answers = [
        {"database": one["database"], **answer} for one in largest for answer in one["answers"]
    ]
    slowest = max(answers, key=lambda one: one["p95_ms"])
    most = max(answers, key=lambda one: one["queries"])
    return {
        "bench": "api",
        "versions": {name: version(name) for name in ("django", "djangorestframework", "psycopg")},
        **before,
        "rows": largest[0]["rows"],
        "calls": calls,
        "ours": {
            "slowest_p95_ms": slowest["p95_ms"],
            "slowest": _named(slowest),
            "most_queries": most["queries"],
            "most": _named(most),
            "over": [_named(one) for one in answers if _is_over(one)],
            # What is over by the work of this process alone, whatever else the machine did.
            "over_by_cpu": [_named(one) for one in answers if one["cpu_p95_ms"] > LIMIT_MS],
            "answers": answers,
        },
        "peer": None,
        "ratio": None,
        "limit": {"p95_ms": LIMIT_MS, "queries": LIMIT_QUERIES},
        "limit_ratio": round(slowest["p95_ms"] / LIMIT_MS, 3),
        "growth": {
            "steps": [_step(one) for one in steps],
            # Of what this process spends on all questions, each at its median; SQLite works in it.
            "cpu_ratio": {
                database: _growth([one for one in steps if one["database"] == database])
                for database in dict.fromkeys(one["database"] for one in steps)
            },
        },
    }


def _named(answer: Mapping[str, Any]) -> str:
    return (
        f"{answer['database']}: {answer['of']}, {answer['question']}, by {answer['by']} to a"
        f" {answer['as']}: {answer['p95_ms']} ms ({answer['cpu_p95_ms']} ms of its own),"
        f" {answer['queries']} queries"
    )


def _is_over(answer: Mapping[str, Any]) -> bool:
    return bool(answer["p95_ms"] > LIMIT_MS or answer["queries"] > LIMIT_QUERIES)


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    """The slowest and the mean of each list, for the table of growth."""
    found: dict[str, Any] = {"database": step["database"], "rows": step["size"]}
    for of in sorted({answer["of"] for answer in step["answers"]}):
        mine = [answer for answer in step["answers"] if answer["of"] == of]
        found[f"{of}_p95_ms"] = max(one["p95_ms"] for one in mine)
        found[f"{of}_p50_ms"] = round(mean(one["p50_ms"] for one in mine), 1)
        # Whatever else the machine did.
        found[f"{of}_cpu_ms"] = round(mean(one["cpu_p50_ms"] for one in mine), 1)
    return found | {"fill_seconds": step["fill_seconds"], "peak_rss_mb": step["peak_rss_mb"]}


def _growth(steps: Sequence[Mapping[str, Any]]) -> float:
    """What all questions cost at the largest size against the smallest that was measured."""
    costs: list[float] = [sum(one["cpu_p50_ms"] for one in step["answers"]) for step in steps]
    return round(costs[-1] / costs[0], 2)


def _measure(task: Task, environment: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    argv = module("tools.benches.api_clerk")
    with helper(argv, environment) as clerk:
        assert clerk.stdin is not None  # noqa: S101 - helper() asks for a pipe
        clerk.stdin.write(msgspec.json.encode(task).decode() + "\n")
        clerk.stdin.flush()
        while True:
            found: dict[str, Any] = msgspec.json.decode(line_of(clerk))
            yield found
            if found["size"] == task.sizes[-1]:
                return


def _keep(step: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """For the next time, when there are more rows, and for one that was stopped in between."""
    path = Path(environment["CRAWLYARD_DATA"]) / STEPS
    steps = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
    steps[str(step["size"])] = step
    path.write_bytes(msgspec.json.encode(steps))


def _kept(task: Task, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    steps = msgspec.json.decode((Path(environment["CRAWLYARD_DATA"]) / STEPS).read_bytes())
    return [steps[str(size)] for size in task.sizes if str(size) in steps]


@contextmanager
def _installation(kind: str, *, fresh: bool) -> Iterator[dict[str, str]]:
    """Settings of the one that is kept for this database."""
    folder = Path(settings.DATA_DIR) / f"api-{kind}"
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    # Nothing of this process's settings is meant, but the server named here.
    names = ("DATABASE_URL", "BROKER_URL", "REDIS_URL", "LOGS_URL", "REQUESTS_URL")
    environment = dict.fromkeys((*names, "REQUESTS_NODES"), "") | {
        "CRAWLYARD_DATA": str(folder),
        "DJANGO_SETTINGS_MODULE": "crawlyard.settings.web",
        "REST_RATE": "none",
        "LOG_LEVEL": "WARNING",
    }
    if kind == "postgresql":
        url = _kept_database(fresh=fresh)
        environment |= {"DATABASE_URL": url, "REQUESTS_URL": url}
    yield environment


def _kept_database(*, fresh: bool) -> str:
    """DATABASE_URL of the bench's own beside that of the settings."""
    url: str = settings.DATABASE_URL
    name = sql.Identifier(DATABASE)
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            if fresh:
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
            asked = "SELECT 1 FROM pg_database WHERE datname = %s"
            if connection.execute(asked, [DATABASE]).fetchone() is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
    except psycopg.Error as error:
        raise BenchFailed(f"DATABASE_URL: no database of its own: {error}") from error
    return urlunsplit(urlsplit(url)._replace(path=f"/{DATABASE}"))
