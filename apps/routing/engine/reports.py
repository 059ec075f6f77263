"""Status reports of a router on its inbounds and outbounds. They never contain secrets."""

from __future__ import annotations

import msgspec


class InboundReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Status of one inbound of one router; counters start when the router loads the rules."""

    # Current problem ("" if there is none) and its start in milliseconds since the Unix epoch.
    problem: str = ""
    problem_at_ms: int = 0
    # Number of waiting items; None if unknown.
    depth: int | None = None
    # Items received, by outcome.
    taken: int = 0
    filtered: int = 0
    poison: int = 0
    # Acknowledgements after the deadline: these items were redelivered to another consumer.
    late: int = 0
    # Warnings of a running inbound: (code, text).
    findings: tuple[tuple[str, str], ...] = ()


class OutboundReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Status of one outbound of one router; counters start when the router loads the rules."""

    problem: str = ""
    problem_at_ms: int = 0
    # Number of messages that wait for a consumer; None if unknown.
    depth: int | None = None
    # Whether the queue has reached ``max_lag``.
    full: bool = False
    sent: int = 0
    refused: int = 0
    # Why the shared rate limit is unavailable and a local share is used; "" if it is available.
    limit_degraded: str = ""


class FileReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Status of the failure file of one router."""

    problem: str = ""
    problem_at_ms: int = 0


class Reports(msgspec.Struct, frozen=True, omit_defaults=True):
    """Status of all inbounds and outbounds of a project in one router, by name."""

    inbounds: dict[str, InboundReport] = {}
    outbounds: dict[str, OutboundReport] = {}
    # Number of type errors in selectors, by outbound.
    selector_errors: dict[str, int] = {}
    failure_file: FileReport = FileReport()
