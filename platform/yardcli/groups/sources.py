"""``crawlyard sources``: record APIs and their imports."""

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
    list_shown,
    rows_shown,
)
from yardcli.lookup import find_project, project_id

commands = group("sources", "Sources: record APIs that are read again and again.")
Project = Annotated[str, typer.Argument(metavar="PROJECT", help="Slug, name or id.")]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[SOURCE]...", help="Default: all sources.")
]


@commands.command("list")
def list_(project: Project, output: Output = None, profile: Profile = None) -> None:
    """List sources of a project."""
    client = api()
    answer = client.get(f"sources/projects/{find_project(client, project)['id']}")
    columns = ("name", "kind", "enabled", "activity", "queue", "cron", "next_run_at", "problem")
    list_shown(answer["sources"], columns)


@commands.command()
def run(
    project: Project, sources: Names = None, output: Output = None, profile: Profile = None
) -> None:
    """Import from these sources, or all enabled ones; each continues where it stopped."""
    _ask(project, sources, "start")


@commands.command()
def stop(
    project: Project, sources: Names = None, output: Output = None, profile: Profile = None
) -> None:
    """Stop these sources, or all, after the current batch."""
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
    """List imports, newest first."""
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
