"""Probes: /healthz (the process is alive) and /readyz (it can do its work)."""

from __future__ import annotations

import logging
import shutil
from typing import Final

import redis
from django.conf import settings
from django.core.cache import cache
from django.db import connections
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from apps.runtime.errors import DATABASE_ERRORS
from apps.runtime.queries import queue_problems, unapplied_migrations
from apps.runtime.services import shared_broker
from yardkit.broker import BrokerError
from yardkit.questions import Question, QuestionOutcome, read_all

logger = logging.getLogger(__name__)

# Below the default probe timeouts of orchestrators.
ANSWER_SECONDS: Final = 3.0
# Several times the space that a database needs to commit one more transaction.
LEAST_FREE_BYTES: Final = 16 * 1024 * 1024
_CACHE_KEY: Final = "runtime.readyz"


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Return 200 while the process answers; queries no store."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Return 200 if database, broker and cache answer and the disk has space; else 503 with the
    problem.

    ``queues`` names shared queues through which no message goes. They do not make a process
    unready: another web process would not be better off, and it takes requests all the same.
    """
    answers = read_all(_checks, ANSWER_SECONDS)
    problems = {name: _problem(name, answer) for name, answer in answers.items()}
    ready = not any(problems.values())
    queues = _queues.read(ANSWER_SECONDS) if ready else {}
    status = "degraded" if queues else "ok"
    return JsonResponse(
        {
            "status": status if ready else "unavailable",
            "checks": {name: problem or "ok" for name, problem in problems.items()},
            "queues": queues,
        },
        status=200 if ready else 503,
        headers={} if ready else {"Retry-After": "5"},
    )


def _problem(name: str, answer: QuestionOutcome[str | None]) -> str | None:
    """Return the problem, worded for anonymous callers; None if there is none."""
    if isinstance(answer.error, TimeoutError):
        return "no answer in time"
    if answer.error is not None:
        # A bug in a check means "not ready"; it must not become an error of the caller.
        logger.error("the readiness check of the %s failed", name, exc_info=answer.error)
        return "the check itself failed"
    return answer.value


def _database() -> str | None:
    try:
        missing = unapplied_migrations()
    except DATABASE_ERRORS as error:
        return _away("database", error)
    finally:
        connections.close_all()
    return f"{len(missing)} migrations are not applied" if missing else None


def _broker() -> str | None:
    try:
        broker = shared_broker()
    except BrokerError as error:
        return _away("broker", error)
    return None if broker.connected else "connection lost, reconnecting"


def _broken_queues() -> dict[str, str]:
    try:
        # Without the broker's words, which may name hosts.
        return {name: problem.partition(":")[0] for name, problem in queue_problems().items()}
    except DATABASE_ERRORS as error:
        logger.warning("the state of the queues is not known: %s", error)
        return {}
    finally:
        connections.close_all()


def _cache() -> str | None:
    try:
        cache.set(_CACHE_KEY, "ok", 60)
        return None if cache.get(_CACHE_KEY) == "ok" else "does not keep what is stored"
    except (redis.RedisError, OSError) as error:
        return _away("cache", error)


def _disk() -> str | None:
    # Of the data folder, which contains the embedded databases, broker and files.
    free = shutil.disk_usage(settings.DATA_DIR).free
    return None if free >= LEAST_FREE_BYTES else "the disk is full"


def _away(store: str, error: Exception) -> str:
    # The text may name hosts and users: it is logged, not shown to the caller.
    logger.warning("not ready: %s: %s", store, error)
    return "no connection"


_checks: dict[str, Question[str | None]] = {
    name: Question(check, name=f"readyz-{name}")
    for name, check in (
        ("database", _database),
        ("broker", _broker),
        ("cache", _cache),
        ("disk", _disk),
    )
}
_queues: Question[dict[str, str]] = Question(_broken_queues, name="readyz-queues")
