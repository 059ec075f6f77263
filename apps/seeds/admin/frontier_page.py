"""Data of a frontier's page: counts, segments and operations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.seeds.admin.moments import begins, granularity_of, lasting, zone_of
from apps.seeds.admin.operation_lines import OperationLine, lines_of
from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.engine.seeds import DEFAULT_SEGMENT
from apps.seeds.models import Frontier, SegmentReport
from apps.seeds.queries import ServiceStatus, Totals, last_report, service_status, totals_of

# Newest segments shown; older ones are added if they have unfinished seeds.
SHOWN_NEWEST: Final = 20
SHOWN_OLDER: Final = 40
MOST_SHOWN: Final = 5000
# Above this false-positive rate nearly every add queries the store.
HIGH_RATE: Final = 0.05


@dataclass(frozen=True, slots=True)
class SegmentLine:
    """Row of the segment table. ``when``: "default", "past", "now" or "future"."""

    report: SegmentReport
    begins: str
    when: str
    # Time until a future segment becomes due.
    due_in: str

    @property
    def stored(self) -> int:
        """Return the number of seeds stored in the segment."""
        return self.report.added - self.report.forgotten

    @property
    def done(self) -> int:
        """Return the number of seeds that succeeded, were ignored or were forgotten."""
        return self.report.succeeded + self.report.ignored + self.report.forgotten

    @property
    def fill_percent(self) -> float | None:
        """Return the share of set bits in the segment's Bloom filter, in percent; None without a
        filter.
        """
        fill = self.report.filter_fill
        return None if fill is None else 100 * fill

    @property
    def rate_text(self) -> str:
        """Return the false-positive rate of the Bloom filter as a percentage."""
        percent = 100 * (self.report.filter_rate or 0.0)
        if 0 < percent < 0.001:
            return "<0.001"
        return f"{percent:.2g}" if percent < 1 else f"{percent:.0f}"

    @property
    def is_crowded(self) -> bool:
        """Return whether the segment has more seeds than its Bloom filter was sized for."""
        rate = self.report.filter_rate
        return rate is not None and rate > HIGH_RATE


@dataclass(frozen=True, slots=True)
class FrontierWarning:
    """Warning at the top of a frontier's page."""

    tone: str
    icon: str
    text: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FrontierView:
    """Template data of a frontier's page."""

    frontier: Frontier
    totals: Totals
    lines: list[SegmentLine]
    segment_count: int
    service: ServiceStatus
    reported_at: datetime | None
    operations: list[OperationLine]
    troubles: list[FrontierWarning]
    zone: str
    granularity: str

    @property
    def hidden(self) -> int:
        """Return the number of segments left out of the table."""
        return self.segment_count - len(self.lines)

    @property
    def books(self) -> list[tuple[str, str, int]]:
        """Return the counters that must add up to the seeds added: (name, label, count)."""
        totals = self.totals
        return [
            ("pending", _("pending"), totals.pending),
            ("leased", _("leased"), totals.leased),
            ("succeeded", _("succeeded"), totals.succeeded),
            ("failed", _("failed"), totals.failed),
            ("ignored", _("ignored"), totals.ignored),
            ("forgotten", _("forgotten"), totals.forgotten),
        ]


def frontier_view(frontier: Frontier, now: datetime, *, whole: bool = False) -> FrontierView:
    """Build the page of ``frontier`` with its newest segments, or with all if ``whole``. Six
    queries.
    """
    totals = totals_of([frontier.pk])[frontier.pk]
    count = SegmentReport.objects.filter(frontier=frontier).count()
    service = service_status(now)
    zone = zone_of(frontier.time_zone)
    current_segment = _segment_of_now(frontier, now)
    lines = [
        _line(report, current_segment, zone, now) for report in _reports(frontier, whole=whole)
    ]
    reported = last_report(frontier)
    operations = lines_of(frontier, now)
    return FrontierView(
        frontier=frontier,
        totals=totals,
        lines=lines,
        segment_count=count,
        service=service,
        reported_at=reported,
        operations=operations,
        troubles=_troubles(frontier, totals, lines, service),
        zone=frontier.time_zone,
        granularity=granularity_of(frontier.segments),
    )


def segment_line(report: SegmentReport, frontier: Frontier, now: datetime) -> SegmentLine:
    """Convert the report of a segment to a table row."""
    return _line(report, _segment_of_now(frontier, now), zone_of(frontier.time_zone), now)


def _segment_of_now(frontier: Frontier, now: datetime) -> int | None:
    try:
        return frontier.rules().segments(int(now.timestamp() * 1000))
    except InvalidFrontierSetting:
        return None
    except Exception:  # noqa: BLE001 - a plug-in may raise anything
        return None


def _reports(frontier: Frontier, *, whole: bool) -> list[SegmentReport]:
    """Return the default segment, the newest ones, and older ones with pending, leased or failed
    seeds.
    """
    rows = SegmentReport.objects.filter(frontier=frontier).order_by("-segment")
    if whole:
        shown = list(rows[:MOST_SHOWN])
    else:
        newest = list(rows[: SHOWN_NEWEST + 1])
        oldest = newest[-1].segment if len(newest) > SHOWN_NEWEST else DEFAULT_SEGMENT
        older = rows.filter(segment__lte=oldest).exclude(
            pending=0, leased=0, segment__gt=DEFAULT_SEGMENT
        )
        shown = newest[:SHOWN_NEWEST]
        known = {report.pk for report in shown}
        shown += [
            report for report in older.order_by("segment")[:SHOWN_OLDER] if report.pk not in known
        ]
    return sorted(shown, key=lambda row: (row.segment != DEFAULT_SEGMENT, -row.segment))


def _line(
    report: SegmentReport, current_segment: int | None, zone: Any, now: datetime
) -> SegmentLine:
    ms = now.timestamp() * 1000
    when = "past"
    due_in = ""
    if report.segment == DEFAULT_SEGMENT:
        when = "default"
    elif report.segment > ms:
        when = "future"
        due_in = lasting((report.segment - ms) / 1000)
    elif report.segment == current_segment:
        when = "now"
    return SegmentLine(report, begins(report.segment, zone), when, due_in)


def _troubles(
    frontier: Frontier, totals: Totals, lines: list[SegmentLine], service: ServiceStatus
) -> list[FrontierWarning]:
    troubles = []
    if not totals.balances:
        difference = totals.added - totals.placed
        text = ngettext(
            "%(count)d seed is unaccounted for.",
            "%(count)d seeds are unaccounted for.",
            abs(difference),
        )
        wrong = [line.begins for line in lines if not line.report.balances]
        detail = _("Segments: %(names)s") % {"names": ", ".join(wrong[:10])} if wrong else ""
        troubles.append(FrontierWarning("danger", "warning", text % {"count": difference}, detail))
    if not service.alive:
        troubles.append(
            FrontierWarning(
                "danger",
                "cloud_off",
                _("The seed service is unavailable."),
                _(
                    "No seed is lost, and leases are extended when it is back. The figures below "
                    "are from its last report."
                ),
            )
        )
    if frontier.is_frozen:
        text = _("Seeds are being moved. Until this is done, no seed is accepted or leased.")
        troubles.append(FrontierWarning("warning", "sync", text))
    elif frontier.is_paused:
        text = _("Paused: seeds are accepted but not leased.")
        troubles.append(FrontierWarning("warning", "pause_circle", text))
    return troubles
