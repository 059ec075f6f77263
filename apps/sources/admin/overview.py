"""Data of the page of sources: problems first, then every source."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.utils.translation import gettext as _

from apps.configcenter.admin.shown import rollout_text
from apps.configcenter.models import Configuration
from apps.configcenter.queries import rollouts_of
from apps.projects.models import Project
from apps.runtime.queries import live_daemons
from apps.sources.admin.words import gap_text, note_text
from apps.sources.models import Harvest, SourceState
from apps.sources.queries import KIND, SourceStatus, progress_of, statuses
from apps.sources.states import BUSY, HarvestState, SourceActivity

# An import without progress for this long is shown as a problem.
QUIET: Final = timedelta(minutes=5)
_WIDTH: Final = 1000
# An intended gap: its records are too old.
TOO_OLD: Final = "expired"


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """A problem that needs attention."""

    tone: str
    icon: str
    text: str
    detail: str = ""
    # URL of the page that shows it; "" if there is none.
    source: str = ""


@dataclass(frozen=True, slots=True)
class OffsetChart:
    """Chart of offsets from 0 to the last total, in thousandths of its width.

    ``read`` is the part that earlier imports have read, ``now`` the part of the active import.
    """

    total: int
    read: int
    start: int
    next: int
    # (start, width, is a problem) of each gap.
    gaps: list[tuple[int, int, bool]]

    @property
    def now(self) -> int:
        """Width of the part that the active import has read."""
        return max(0, self.start - self.next)


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source, as the page shows it."""

    status: SourceStatus
    now: datetime

    @property
    def name(self) -> str:
        return self.status.name

    @property
    def state(self) -> SourceState | None:
        """Import progress of the source; None before its first start."""
        return self.status.state

    @property
    def harvest(self) -> Harvest | None:
        """Newest import."""
        return self.status.harvest

    @property
    def activity(self) -> str:
        """``idle``, ``queued``, ``running``, ``stopping``; ``off`` (disabled) or ``gone`` (not
        configured).
        """
        if self.state is not None and self.state.activity != SourceActivity.IDLE:
            return self.state.activity
        if self.status.settings is None:
            return "gone"
        return "idle" if self.status.settings.enabled else "off"

    @property
    def activity_text(self) -> str:
        """Translated text of ``activity``."""
        other = {"off": _("disabled"), "gone": _("not in the configuration")}
        return other.get(self.activity) or str(SourceActivity(self.activity).label)

    @property
    def is_busy(self) -> bool:
        """Whether it can be stopped."""
        return self.activity in BUSY

    @property
    def may_start(self) -> bool:
        """Whether it can be started."""
        settings = self.status.settings
        return settings is not None and settings.enabled and not self.is_busy

    @property
    def progress(self) -> float | None:
        """Progress of the active import in percent."""
        harvest = self.harvest
        if harvest is None or harvest.state != HarvestState.RUNNING:
            return None
        share = progress_of(harvest)
        return None if share is None else 100 * share

    @property
    def speed(self) -> float | None:
        """Records per second of the newest import."""
        harvest = self.harvest
        if harvest is None or harvest.moved_at is None:
            return None
        seconds = (harvest.moved_at - harvest.started_at).total_seconds()
        return harvest.read / seconds if seconds > 0.5 else None

    @property
    def is_quiet(self) -> bool:
        """Whether the active import has made no progress for minutes."""
        harvest = self.harvest
        if harvest is None or harvest.state != HarvestState.RUNNING:
            return False
        return self.now - (harvest.moved_at or harvest.started_at) > QUIET

    @property
    def gaps(self) -> list[tuple[str, bool]]:
        """Return the offsets never read, each with its reason and whether it is a problem."""
        gaps = self.state.gaps if self.state is not None else []
        return [(gap_text(gap), gap["why"] != TOO_OLD) for gap in gaps]

    @property
    def notes(self) -> list[str]:
        """Remarks of the newest import."""
        return [note_text(note) for note in (self.harvest.notes if self.harvest else [])]

    @property
    def line(self) -> OffsetChart | None:
        """Return the chart of offsets; None before the first request to the API."""
        state, harvest = self.state, self.harvest
        total = (harvest.total if harvest is not None else None) or (
            state.last_total if state is not None else None
        )
        if not total or state is None:
            return None

        def place(offset: int | None) -> int:
            return round(_WIDTH * min(max(offset or 0, 0), total) / total)

        running = harvest is not None and harvest.ended_at is None
        start = harvest.total if harvest is not None and running else None
        following = harvest.next_offset if harvest is not None and running else None
        if following is not None and harvest is not None and harvest.start_offset == following:
            following = start
        return OffsetChart(
            total=total,
            read=place(state.last_total or state.marker) if state.marker is not None else 0,
            start=place(start),
            next=place(following if following is not None else start),
            # At least this wide, to stay visible.
            gaps=[
                (
                    place(gap["from"]),
                    max(3, place(gap["to"] + 1) - place(gap["from"])),
                    gap["why"] != TOO_OLD,
                )
                for gap in state.gaps
            ],
        )


@dataclass(frozen=True, slots=True)
class SourcesOverview:
    """All data of the page."""

    project: Project
    lines: list[SourceRow]
    configuration: Configuration | None
    runs: str
    collectors: int
    troubles: list[SourceProblem] = field(default_factory=list)

    @property
    def totals(self) -> dict[str, int]:
        """Totals over the newest imports of all sources."""
        names = ("read", "published", "filtered", "re_read", "refused")
        harvests = [line.harvest for line in self.lines if line.harvest is not None]
        return {name: sum(getattr(harvest, name) for harvest in harvests) for name in names}

    @property
    def some_idle(self) -> bool:
        """Whether any source can be started."""
        return any(line.may_start for line in self.lines)

    @property
    def some_busy(self) -> bool:
        """Whether any source can be stopped."""
        return any(line.is_busy for line in self.lines)


def overview(project: Project, now: datetime) -> SourcesOverview:
    """Load the overview of a project in a fixed number of queries."""
    lines = [SourceRow(status, now) for status in statuses(project.pk)]
    row = (
        Configuration.objects.filter(kind=KIND, project=project)
        .select_related("active", "project")
        .first()
    )
    runs = "" if row is None else rollout_text(rollouts_of([row])[row.pk])
    collectors = live_daemons(kind="collector", now=now).count()
    return SourcesOverview(project, lines, row, runs, collectors, _problems(lines, collectors))


def _problems(lines: list[SourceRow], collectors: int) -> list[SourceProblem]:
    problems = []
    waiting = [line.name for line in lines if line.activity == SourceActivity.QUEUED]
    if not collectors and lines:
        text = _("No collector is running. Imports begin when one is started.")
        detail = _("Waiting: %(names)s") % {"names": ", ".join(waiting)} if waiting else ""
        problems.append(SourceProblem("danger", "cloud_off", text, detail))
    for line in lines:
        state, harvest = line.state, line.harvest
        # A failed source that is now disabled or no longer configured is not a problem.
        wanted = line.activity not in ("off", "gone")
        if wanted and harvest is not None and harvest.state == HarvestState.FAILED:
            text = _("%(name)s failed. Start it to resume the import.")
            detail = harvest.error or (state.problem if state is not None else "")
            problems.append(
                SourceProblem("danger", "error", text % {"name": line.name}, detail, line.name)
            )
        elif state is not None and state.waiting_for:
            text = _("%(name)s is waiting and will continue automatically.") % {"name": line.name}
            problems.append(
                SourceProblem("warning", "hourglass", text, state.waiting_for, line.name)
            )
        elif line.is_quiet:
            text = _("%(name)s has read no records for five minutes.") % {"name": line.name}
            problems.append(SourceProblem("warning", "hourglass", text, source=line.name))
        if harvest is not None and not harvest.counts["balanced"]:
            text = _("%(name)s: records are not all accounted for.") % {"name": line.name}
            problems.append(
                SourceProblem("danger", "warning", text, str(harvest.counts), line.name)
            )
        if any(note.get("code") in ("shrunk", "replaced") for note in _notes(harvest)):
            text = _("%(name)s has fewer or other records than before.") % {"name": line.name}
            problems.append(
                SourceProblem("warning", "trending_down", text, " ".join(line.notes), line.name)
            )
    return problems


def _notes(harvest: Harvest | None) -> list[dict[str, Any]]:
    return [] if harvest is None else harvest.notes
