"""``crawlyard builds``."""

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
from yardcli.groups.projects import BUILD
from yardcli.lookup import project_id
from yardcli.watch import follow, line_shown

commands = group("builds", "Builds of images.")
Build = Annotated[int, typer.Argument(metavar="BUILD", min=1)]


@commands.command("list")
def list_(
    project: ProjectOption = None,
    state: Annotated[list[str] | None, typer.Option("--state")] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List builds, newest first."""
    columns = ("id", "project", "tag", "state", "step", "reason", "created_at")
    of = project_id(api(), project)
    rows_shown("builds", columns, limit=limit, everything=everything, project=of, state=state)


@commands.command()
def show(build: Build, output: Output = None, profile: Profile = None) -> None:
    """Show a build."""
    one_shown(api().get(f"builds/{build}"))


@commands.command()
def cancel(build: Build, output: Output = None, profile: Profile = None) -> None:
    """Cancel a waiting or running build."""
    one_shown(api().post(f"builds/{build}/cancel"), BUILD)


@commands.command()
def rebuild(
    build: Build,
    cached: Annotated[bool, typer.Option("--cached", help="Reuse cached layers.")] = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Build the same tag again."""
    one_shown(api().post(f"builds/{build}/rebuild", {"no_cache": not cached}), BUILD)


@commands.command()
def logs(
    build: Build,
    follow_it: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new lines as they arrive.")
    ] = False,
    tail: Annotated[int, typer.Option("--tail", "-n", min=1, help="Number of last lines.")] = 200,
    profile: Profile = None,
) -> None:
    """Show the log of a build."""
    client = api()
    if follow_it:
        follow(client, f"builds/{build}", tail=tail, show=line_shown)
        return
    for line in client.get(f"builds/{build}/logs", tail=tail)["results"]:
        line_shown(line)
