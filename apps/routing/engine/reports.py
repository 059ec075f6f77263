"""Reports of a router about its inbounds and outbounds: numbers and problems, never a secret."""

from __future__ import annotations

import msgspec


class InboundReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One inbound of one router, since that router laid its track."""

    # What is wrong now, and since when (milliseconds since 1970); "" when all is well.
    problem: str = ""
    problem_at_ms: int = 0
    # Items that wait to be taken; None when it is unknown.
    depth: int | None = None
    # Items that it has delivered, and their outcome.
    taken: int = 0
    filtered: int = 0
    poison: int = 0
    # Acks that came too late: another consumer got those items as well.
    late: int = 0
    # What it finds of itself though it runs: a code, and the text of it.
    findings: tuple[tuple[str, str], ...] = ()


class OutboundReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One outbound of one router, since that router laid its track."""

    problem: str = ""
    problem_at_ms: int = 0
    # Messages that wait for a consumer; None when it is unknown.
    depth: int | None = None
    # It has its ``max_lag`` messages waiting.
    full: bool = False
    sent: int = 0
    refused: int = 0
    # Why the rate limit is this router's share alone; "" when the common one is used.
    limit_degraded: str = ""


class FileReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The failure file of one router."""

    problem: str = ""
    problem_at_ms: int = 0


class Reports(msgspec.Struct, frozen=True, omit_defaults=True):
    """All lines of a project in one router, by name, and its failure file."""

    inbounds: dict[str, InboundReport] = {}
    outbounds: dict[str, OutboundReport] = {}
    # Selectors that met a type error, by the name of their outbound.
    selector_errors: dict[str, int] = {}
    failure_file: FileReport = FileReport()
