"""``crawlyard sources``: record APIs and what was harvested from them."""

from __future__ import annotations

from typing import Annotated

import typer

from yardcli.here import (
    DEFAULT_LIMIT,
    Everything,
    Limit,
    Output,
    Profile,
    ProjectOption,
    api,
    group,
    list_shown,
    rows_shown,
)
from yardcli.lookup import find_project, project_id

commands = group("sources", "Sources: record APIs that are read again and again.")
Project = Annotated[str, typer.Argument(metavar="PROJECT", help="Slug, name or id.")]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[SOURCE]...", help="Without one: all of them.")
]


@commands.command("list")
def list_(project: Project, output: Output = None, profile: Profile = None) -> None:
    """Sources of a project."""
    client = api()
    found = client.get(f"sources/projects/{find_project(client, project)['id']}")
    columns = ("name", "kind", "enabled", "activity", "queue", "cron", "next_run_at", "problem")
    list_shown(found["sources"], columns)


@commands.command()
def run(
    project: Project, sources: Names = None, output: Output = None, profile: Profile = None
) -> None:
    """Harvest these, or every enabled one; each goes on where it was."""
    _ask(project, sources, "start")


@commands.command()
def stop(
    project: Project, sources: Names = None, output: Output = None, profile: Profile = None
) -> None:
    """Stop these, or all, after the batch in hand."""
    _ask(project, sources, "stop")


@commands.command()
def history(
    project: ProjectOption = None,
    source: Annotated[str | None, typer.Option("--source", "-s")] = None,
    state: Annotated[str | None, typer.Option("--state")] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Harvests, newest first."""
    counts = ("read", "published", "filtered", "refused")
    of = project_id(api(), project)
    rows_shown(
        "harvests",
        ("id", "source", "state", *counts, "started_at", "error"),
        limit=limit,
        everything=everything,
        project=of,
        source=source,
        state=state,
    )


def _ask(project: str, sources: list[str] | None, action: str) -> None:
    client = api()
    of = find_project(client, project)["id"]
    body = {"sources": sources} if sources else {}
    answer = client.post(f"sources/projects/{of}/{action}", body)
    list_shown(answer, ("name", "became"))
