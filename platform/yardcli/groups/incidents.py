"""``crawlyard incidents``: incidents of alert rules."""

from __future__ import annotations

from typing import Annotated

import typer

from yardcli.context import (
    DEFAULT_LIMIT,
    Everything,
    Limit,
    Output,
    Profile,
    ProjectOption,
    api,
    group,
    one_shown,
    rows_shown,
)
from yardcli.lookup import project_id

commands = group("incidents", "Incidents: what alert rules have found.")
Incident = Annotated[int, typer.Argument(metavar="INCIDENT", min=1)]
Note = Annotated[str, typer.Option("--note", help="Note for readers of the incident.")]
_SHOWN = ("id", "rule", "severity", "state", "text", "acknowledged_by", "snoozed_until")


@commands.command("list")
def list_(
    project: ProjectOption = None,
    state: Annotated[list[str] | None, typer.Option("--state", "-s", help="Repeatable.")] = None,
    severity: Annotated[str | None, typer.Option("--severity")] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List incidents, newest first."""
    of = project_id(api(), project)
    rows_shown(
        "incidents",
        ("id", "project", "severity", "state", "rule", "key", "opened_at", "text"),
        limit=limit,
        everything=everything,
        project=of,
        state=state,
        severity=severity,
    )


@commands.command()
def show(incident: Incident, output: Output = None, profile: Profile = None) -> None:
    """Show an incident."""
    one_shown(api().get(f"incidents/{incident}"))


@commands.command()
def ack(
    incident: Incident, note: Note = "", output: Output = None, profile: Profile = None
) -> None:
    """Acknowledge an incident: it is being worked on."""
    one_shown(api().post(f"incidents/{incident}/acknowledge", {"note": note}), _SHOWN)


@commands.command()
def close(
    incident: Incident, note: Note = "", output: Output = None, profile: Profile = None
) -> None:
    """Close an incident that its rule does not close."""
    one_shown(api().post(f"incidents/{incident}/close", {"note": note}), _SHOWN)
