"""``crawlyard builds``."""

from __future__ import annotations

from typing import Annotated

import typer

from yardcli.groups.projects import BUILD
from yardcli.here import (
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
    """Builds, newest first."""
    columns = ("id", "project", "tag", "state", "step", "reason", "created_at")
    of = project_id(api(), project)
    rows_shown("builds", columns, limit=limit, everything=everything, project=of, state=state)


@commands.command()
def show(build: Build, output: Output = None, profile: Profile = None) -> None:
    """One of them."""
    one_shown(api().get(f"builds/{build}"))


@commands.command()
def cancel(build: Build, output: Output = None, profile: Profile = None) -> None:
    """End one that waits or runs."""
    one_shown(api().post(f"builds/{build}/cancel"), BUILD)


@commands.command()
def rebuild(
    build: Build,
    cached: Annotated[bool, typer.Option("--cached", help="Take layers of earlier ones.")] = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Build the same tag again."""
    one_shown(api().post(f"builds/{build}/rebuild", {"no_cache": not cached}), BUILD)


@commands.command()
def logs(
    build: Build,
    follow_it: Annotated[bool, typer.Option("--follow", "-f", help="And what comes.")] = False,
    tail: Annotated[int, typer.Option("--tail", "-n", min=1, help="So many last lines.")] = 200,
    profile: Profile = None,
) -> None:
    """What it has written."""
    client = api()
    if follow_it:
        follow(client, f"builds/{build}", tail=tail, show=line_shown)
        return
    for line in client.get(f"builds/{build}/logs", tail=tail)["results"]:
        line_shown(line)
