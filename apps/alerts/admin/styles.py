"""State colours and stylesheets of the alerts pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apps.alerts.models import Notice
from apps.alerts.states import IncidentState, NoticeState, Severity

CSS: Final = ["dashboard/dashboard.css", "configcenter/configcenter.css", "alerts/alerts.css"]
SEVERITY_TONES: Final[Mapping[str, str]] = {
    Severity.INFO: "info",
    Severity.WARNING: "warning",
    Severity.CRITICAL: "danger",
}
INCIDENT_TONES: Final[Mapping[str, str]] = {
    IncidentState.OPEN: "danger",
    IncidentState.RECOVERED: "success",
    IncidentState.CLOSED: "info",
}
NOTICE_TONES: Final[Mapping[str, str]] = {
    NoticeState.WAITING: "info",
    NoticeState.SENT: "success",
    NoticeState.FAILED: "danger",
    NoticeState.DROPPED: "warning",
}


def result_text(notice: Notice) -> str:
    """Return the problem and the server's response of a notification, or a dash."""
    problem = str(notice.get_problem_display()) if notice.problem else ""
    return ": ".join(part for part in (problem, notice.answer) if part) or "–"
