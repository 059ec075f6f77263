"""``crawlyard projects``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from yardcli.context import (
    DEFAULT_LIMIT,
    Everything,
    Limit,
    Output,
    Profile,
    api,
    group,
    list_shown,
    one_shown,
    rows_shown,
)
from yardcli.errors import Exits
from yardcli.lookup import find_project
from yardcli.watch import outcome_of, wait

commands = group("projects", "Projects: git repositories of spiders.")
Project = Annotated[str, typer.Argument(metavar="PROJECT", help="Slug, name or id.")]
Days = Annotated[int | None, typer.Option(min=0, help="Older data is deleted; 0: not set.")]
Runs = Annotated[int | None, typer.Option(min=0, help="Runs of a dataset to keep; 0: not set.")]
Size = Annotated[
    int | None, typer.Option("--bytes", min=0, help="Largest size of a dataset; 0: not set.")
]
BUILD = ("id", "project", "tag", "state", "step", "reason", "image", "created_at", "ended_at")


@commands.command("list")
def list_(
    name: Annotated[str | None, typer.Option("--name")] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List projects."""
    columns = ("id", "slug", "name", "git_url", ("builds", "builds_enabled"))
    rows_shown("projects", columns, limit=limit, everything=everything, name=name)


@commands.command()
def show(project: Project, output: Output = None, profile: Profile = None) -> None:
    """Show a project."""
    one_shown(find_project(api(), project))


@commands.command()
def check(project: Project, output: Output = None, profile: Profile = None) -> None:
    """Check that the project's repository is readable."""
    client = api()
    row = find_project(client, project)
    one_shown(client.post(f"projects/{row['id']}/test-connection"))


@commands.command()
def sync(project: Project, output: Output = None, profile: Profile = None) -> None:
    """Read the list of images from the project's registry."""
    client = api()
    row = find_project(client, project)
    answer = client.post(f"projects/{row['id']}/images/refresh")
    if isinstance(answer, list):
        list_shown(answer, ("id", "name", "tag", "digest"))
    else:
        one_shown(answer)


@commands.command()
def retention(
    project: Project,
    days: Days = None,
    runs: Runs = None,
    size: Size = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Show or change the retention of datasets that have none of their own."""
    show_retention("projects", find_project(api(), project), days, runs, size)


def show_retention(
    rows: str, row: dict[str, Any], days: int | None, runs: int | None, size: int | None
) -> None:
    """Change the given limits of a project or dataset, and show all."""
    given = {"keep_days": days, "keep_runs": runs, "keep_bytes": size}
    body = {name: value or None for name, value in given.items() if value is not None}
    if body:
        row = api().patch(f"{rows}/{row['id']}", body)
    one_shown({name: row[name] for name in given})


@commands.command()
def build(
    project: Project,
    tag: Annotated[str, typer.Argument(help="Tag in the project's repository.")],
    wait_for_it: Annotated[
        bool, typer.Option("--wait", help="Wait until the build has ended.")
    ] = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Build the image of a tag."""
    client = api()
    body = {"project": find_project(client, project)["id"], "tag": tag}
    made = client.post("builds", body)
    if wait_for_it:
        made = wait(client, f"builds/{made['id']}")
    one_shown(made, BUILD)
    if wait_for_it and outcome_of(made) is not Exits.OK:
        raise typer.Exit(Exits.NEGATIVE)
