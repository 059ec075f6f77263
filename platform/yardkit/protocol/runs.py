"""Messages about runs, their logs and counters."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from yardkit.protocol.base import Message


class RunQueued(Message, frozen=True, kw_only=True, tag="run_queued"):
    """Wake-up of a runner; the run's row is the truth."""

    run: int


class RunAction(enum.StrEnum):
    """Commands to a run."""

    PAUSE = "pause"
    RESUME = "resume"
    EXIT = "exit"
    # Other settings from now on.
    TUNE = "tune"


class Lifecycle(Message, frozen=True, kw_only=True, tag="lifecycle"):
    """Command to one execution of a run, or to all runs of the job.

    ``run`` 0: every run; ``boot`` "": every execution. ``command`` is returned in the answer; 0: no
    answer. Repeated commands get the same answer. ``settings``: of ``tune``.
    """

    action: RunAction
    run: int = 0
    boot: str = ""
    command: int = 0
    reason: str = ""
    settings: dict[str, Any] = {}


class LifecycleAnswer(Message, frozen=True, kw_only=True, tag="lifecycle_answer"):
    """Answer of the run; ``accepted`` false has a ``reason``."""

    run: int
    boot: str
    action: RunAction
    command: int
    accepted: bool = True
    reason: str = ""


class LogRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One log line. ``seq`` counts from 1 in (stream, boot); ``at`` is Unix seconds.

    ``source``: stdout, stderr, a build step, a logger.
    """

    seq: int
    at: float
    level: str
    source: str
    text: str


class LogBatch(Message, frozen=True, kw_only=True, tag="log_batch"):
    """Lines of one stream (``run:7``, ``build:3``), unique by (stream, boot, seq).

    ``dropped``: lines dropped by the sender since ``boot`` began.
    """

    stream: str
    boot: str
    lines: list[LogRecord]
    dropped: int = 0


class FailureNote(msgspec.Struct, frozen=True, array_like=True):
    """A finally failed request. ``seq`` counts from 1 in (run, boot)."""

    seq: int
    url: str
    status: int
    reason: str


class RunCounters(Message, frozen=True, kw_only=True, tag="run_counters"):
    """Counters of a run: absolute since ``boot`` began, so a repeat changes nothing.

    Requests: ``total`` = distinct ones created; left = total - success - failed.
    Attempts: sent + retried = returned + skipped + timed_out + refused + cancelled + out, where
    ``sent`` counts first attempts, ``retried`` all later ones, ``timed_out`` those that were given
    up without an answer (expired or lost, and retried), ``cancelled`` those that were out when
    the run ended, and ``out`` those still on their way; ``held`` of these wait at the center. A
    late answer that is accepted moves its attempt from ``timed_out`` to ``returned``, and one that
    is out in its stead to ``timed_out``. ``duplicates`` are answers that were not accepted; they
    stand outside the equation. ``agents`` counts answers by agent, ``agent_failed`` those of them
    that the spider did not take for a success, and ``agent_ms`` adds up how long their downloads
    took; ``callback_ms`` how long callbacks took, waiting included. ``fields``: in how
    many of ``items`` a field had a value; ``dropped``: how many of ``items`` were given up before
    they were sent, by reason. ``stats``: statistics of another framework (Scrapy) by name, numbers,
    texts and nulls; empty when there are none. ``filtered``: requests that the scheduler dropped as
    duplicates; they are no part of ``total``.
    """

    run: int
    boot: str
    seq: int
    total: int = 0
    success: int = 0
    failed: int = 0
    sent: int = 0
    returned: int = 0
    retried: int = 0
    skipped: int = 0
    timed_out: int = 0
    refused: int = 0
    cancelled: int = 0
    out: int = 0
    held: int = 0
    duplicates: int = 0
    pages: int = 0
    items: int = 0
    bytes_received: int = 0
    queued: int = 0
    in_flight: int = 0
    agents: dict[str, int] = {}
    agent_failed: dict[str, int] = {}
    agent_ms: dict[str, int] = {}
    callback_ms: int = 0
    fields: dict[str, int] = {}
    dropped: dict[str, int] = {}
    stats: dict[str, float | int | bool | str | None] = {}
    filtered: int = 0
    failures: list[FailureNote] = []
    final: bool = False


class CenterCounters(Message, frozen=True, kw_only=True, tag="center_counters"):
    """Absolute counters of one center for one run since ``boot`` began.

    received = dispatched + skipped + expired + refused + held, where ``held`` still wait.
    """

    run: int
    boot: str
    seq: int
    received: int = 0
    dispatched: int = 0
    skipped: int = 0
    expired: int = 0
    refused: int = 0
    held: int = 0


class Event(Message, frozen=True, kw_only=True, tag="event"):
    """News for pages. Droppable: pages refetch."""

    kind: str
    project: int | None = None
    payload: dict[str, Any] = {}
