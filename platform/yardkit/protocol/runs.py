"""Runs and their accounts."""

from __future__ import annotations

from typing import Any

import msgspec

from yardkit.protocol.base import Message


class RunQueued(Message, frozen=True, kw_only=True, tag="run_queued"):
    """Wakes a runner; the run's row is the truth."""

    run: int


class FailureNote(msgspec.Struct, frozen=True, array_like=True):
    """A request that failed for good. ``seq`` counts from 1 inside (run, boot)."""

    seq: int
    url: str
    status: int
    reason: str


class RunCounters(Message, frozen=True, kw_only=True, tag="run_counters"):
    """Where a run stands: absolute counts since ``boot`` began, so a repeat changes nothing.

    Requests: ``total`` = distinct ones created; left = total - success - failed (seed S1.19).
    Attempts: sent + retried = returned + skipped + timed_out + refused + cancelled + out, where
    ``sent`` counts first attempts, ``retried`` all later ones, ``timed_out`` those that were given
    up without an answer (expired or lost, and retried), ``cancelled`` those that were out when
    the run ended, and ``out`` those still on their way; ``held`` of these wait at the center. A
    late answer that is accepted moves its attempt from ``timed_out`` to ``returned``, and one that
    is out in its stead to ``timed_out``. ``duplicates`` are answers that were not accepted; they
    stand outside the equation. ``agents`` counts answers by agent.
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
    failures: list[FailureNote] = []
    final: bool = False


class CenterCounters(Message, frozen=True, kw_only=True, tag="center_counters"):
    """What one center did for one run since ``boot`` began (absolute counts).

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
    """Something a page may want to show at once. Droppable: the page refetches."""

    kind: str
    project: int | None = None
    payload: dict[str, Any] = {}
