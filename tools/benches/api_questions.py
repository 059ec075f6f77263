"""What the bench of the lists asks: over REST and as pages, as a member and as who sees all.

Each question is an address that differs from call to call, so that nothing is answered from what
the call before has left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

from apps.jobs.models import Job
from tools.benches.api_rows import (
    DAYS,
    JOBS_A_PROJECT,
    LINES_A_RUN,
    PROJECTS,
    run_with_lines,
    times,
)

# Who asks.
MEMBER: Final = "member"
EVERYBODY: Final = "superuser"


@dataclass(frozen=True, slots=True)
class Question:
    """``address`` of the n-th call. ``of``: runs, requests or lines."""

    of: str
    name: str
    address: Callable[[int], str]
    who: str = EVERYBODY
    page: bool = False


def questions(jobs: list[Job], *, whole: int, rows: int) -> list[Question]:
    """All of them, for lists of ``rows`` rows."""
    return [
        *_of_runs(jobs, whole, rows),
        *_of_requests(jobs, whole, rows),
        *_of_lines(jobs, whole, rows),
    ]


def _rest(path: str, **query: Any) -> str:
    return f"/api/v1/{path}?{urlencode(query, doseq=True)}"


def _moment(number: int, whole: int, rows: int) -> datetime:
    """A time among the rows, another one for each call."""
    return next(times(1, (number * 7919) % max(1, rows), whole))


def _project(jobs: list[Job], number: int) -> int:
    return jobs[number % PROJECTS * JOBS_A_PROJECT].project_id


def _of_runs(jobs: list[Job], whole: int, rows: int) -> Iterator[Question]:
    def job(number: int) -> int:
        return jobs[number * 13 % len(jobs)].pk

    def since(number: int) -> str:
        return _moment(number, whole, rows).isoformat()

    yield Question("runs", "newest", lambda _n: _rest("runs", limit=50))
    yield Question("runs", "newest", lambda _n: _rest("runs", limit=50), MEMBER)
    yield Question("runs", "200 of them", lambda _n: _rest("runs", limit=200))
    yield Question("runs", "of a project", lambda n: _rest("runs", project=_project(jobs, n)))
    yield Question("runs", "of a job", lambda n: _rest("runs", job=job(n)))
    yield Question("runs", "failed or lost", lambda _n: _rest("runs", state=["failed", "lost"]))
    yield Question("runs", "lost of a job", lambda n: _rest("runs", job=job(n), state="lost"))
    yield Question(
        "runs",
        "lost of a project",
        lambda n: _rest("runs", project=_project(jobs, n), state="lost"),
    )
    yield Question("runs", "running", lambda _n: _rest("runs", state="running"))
    yield Question("runs", "running", lambda _n: _rest("runs", state="running"), MEMBER)
    yield Question("runs", "on a host", lambda n: _rest("runs", host=f"box-{n % 16}"))
    yield Question("runs", "on no such host", lambda n: _rest("runs", host=f"none-{n}"))
    yield Question("runs", "started by a person, none", lambda _n: _rest("runs", trigger="cron"))
    yield Question("runs", "since", lambda n: _rest("runs", since=since(n)))
    yield Question(
        "runs", "since an hour", lambda _n: _rest("runs", since=_end(whole, rows, hours=1))
    )
    pages = "/admin/jobs/run/"
    yield Question("runs", "list", lambda _n: pages, page=True)
    yield Question("runs", "list", lambda _n: pages, MEMBER, page=True)
    yield Question("runs", "list, page 3", lambda _n: f"{pages}?p=3", page=True)
    yield Question("runs", "list, failed", lambda _n: f"{pages}?state__exact=failed", page=True)
    yield Question(
        "runs", "list, of a job", lambda n: f"{pages}?job__id__exact={job(n)}", page=True
    )
    yield Question("runs", "list, searched", lambda n: f"{pages}?q=job+{n % 10}", page=True)
    yield Question(
        "runs", "list, a number", lambda n: f"{pages}?q={1 + n * 7919 % rows}", page=True
    )
    yield Question("runs", "list, searched", lambda n: f"{pages}?q=job+{n % 10}", MEMBER, page=True)
    yield Question("runs", "home", lambda _n: "/admin/", page=True)
    yield Question("runs", "home", lambda _n: "/admin/", MEMBER, page=True)
    yield Question("runs", "one run", lambda n: f"/runs/{1 + n * 7919 % rows}", page=True)
    yield Question("runs", "jobs", lambda _n: "/admin/jobs/job/", page=True)


def _end(whole: int, rows: int, *, hours: int) -> str:
    """So long before the newest row."""
    return (next(times(1, rows, whole)) - timedelta(hours=hours)).isoformat()


def _of_requests(jobs: list[Job], whole: int, rows: int) -> Iterator[Question]:
    def window(number: int) -> dict[str, str]:
        begin = _moment(number, whole, rows)
        return {"since": begin.isoformat(), "until": (begin + timedelta(hours=1)).isoformat()}

    def behind(number: int) -> str:
        return f"{int(_moment(number, whole, rows).timestamp() * 1000)}.1"

    yield Question("requests", "newest of all", lambda _n: _rest("requests", limit=50))
    yield Question("requests", "newest", lambda _n: _rest("requests", limit=50), MEMBER)
    yield Question(
        "requests", "of a biz", lambda n: _rest("requests", project=_project(jobs, n), biz="news")
    )
    yield Question(
        "requests",
        "processed of a biz",
        lambda n: _rest("requests", project=_project(jobs, n), biz="shop", flag=1),
    )
    yield Question("requests", "processed of all", lambda _n: _rest("requests", flag=1))
    yield Question("requests", "none with a flag", lambda n: _rest("requests", flag=7 + n % 5))
    yield Question("requests", "of an hour", lambda n: _rest("requests", **window(n)))
    yield Question("requests", "deep page", lambda n: _rest("requests", after=behind(n)))
    yield Question(
        "requests", "page of queues", lambda _n: "/admin/requeststore/queuereport/", page=True
    )
    yield Question(
        "requests",
        "page of queues",
        lambda _n: "/admin/requeststore/queuereport/",
        MEMBER,
        page=True,
    )
    yield Question(
        "runs", "page of all queues", lambda _n: "/admin/queuestats/queuestate/", page=True
    )


def _of_lines(jobs: list[Job], whole: int, rows: int) -> Iterator[Question]:
    logs = max(1, rows // LINES_A_RUN)

    def run(number: int) -> int:
        return run_with_lines(number * 37 % logs)

    def window(number: int) -> dict[str, str]:
        begin = _moment(number, whole, rows)
        return {"since": begin.isoformat(), "until": (begin + timedelta(hours=1)).isoformat()}

    def word(number: int) -> str:
        return f"item-{number * 7919 % 1_000_000}.html"

    yield Question("lines", "newest", lambda _n: _rest("logs", limit=100))
    yield Question("lines", "newest", lambda _n: _rest("logs", limit=100), MEMBER)
    yield Question("lines", "errors", lambda _n: _rest("logs", level="ERROR"))
    yield Question("lines", "critical, none", lambda _n: _rest("logs", level="CRITICAL"))
    yield Question("lines", "a common word", lambda _n: _rest("logs", text="price"))
    yield Question("lines", "a common word", lambda _n: _rest("logs", text="price"), MEMBER)
    yield Question("lines", "a Chinese word", lambda _n: _rest("logs", text="价格"))
    yield Question("lines", "one Chinese character", lambda _n: _rest("logs", text="价"))
    yield Question("lines", "a rare word", lambda n: _rest("logs", text=word(n)))
    yield Question("lines", "no such word", lambda n: _rest("logs", text=f"nowhere{n}"))
    yield Question("lines", "a phrase", lambda _n: _rest("logs", text='"cannot read the price"'))
    yield Question("lines", "two words", lambda n: _rest("logs", text=f"稍后 {n % 97}"))
    yield Question("lines", "a word in an hour", lambda n: _rest("logs", text="200", **window(n)))
    yield Question(
        "lines",
        "errors of a project",
        lambda n: _rest("logs", project=_project(jobs, n), level="ERROR"),
    )
    yield Question(
        "lines",
        "a word of a job",
        lambda n: _rest("logs", job=jobs[n * 13 % len(jobs)].pk, text="价格"),
    )
    yield Question("lines", "of a kind", lambda n: _rest("logs", fingerprint=f"{n * 7 % 500:016x}"))
    yield Question("lines", "end of a log", lambda n: _rest(f"runs/{run(n)}/logs", limit=200))
    yield Question(
        "lines", "middle of a log", lambda n: _rest(f"runs/{run(n)}/logs", after=f"1.{n % 900}")
    )
    yield Question(
        "lines", "text in a log", lambda n: _rest(f"runs/{run(n)}/logs", contains=f"item-{n % 10}")
    )
    yield Question("lines", "search", lambda _n: f"/logs?text={quote('价格')}", page=True)
    yield Question("lines", "kinds of errors", lambda _n: "/logs/errors", page=True)


def described() -> str:
    """What the rows are."""
    return f"{PROJECTS} projects of {JOBS_A_PROJECT} jobs, {DAYS} days"
