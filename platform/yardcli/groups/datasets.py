"""``crawlyard datasets``."""

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
from yardcli.groups.projects import Days, Runs, Size, show_retention
from yardcli.lookup import find_dataset, project_id

commands = group("datasets", "Datasets: the items of jobs, request groups and sources.")
Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="Name, PROJECT/NAME or id.")]


@commands.command("list")
def list_(
    project: ProjectOption = None,
    origin: Annotated[
        str | None, typer.Option("--origin", help="job, biz (a request group) or source.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List datasets."""
    rows_shown(
        "datasets",
        ("id", "project", "name", "origin", "items", "bytes"),
        limit=limit,
        everything=everything,
        project=project_id(api(), project),
        origin=origin,
    )


@commands.command()
def show(
    dataset: Dataset, project: ProjectOption = None, output: Output = None, profile: Profile = None
) -> None:
    """Show a dataset with its columns and settings."""
    one_shown(find_dataset(api(), dataset, project))


@commands.command()
def runs(
    dataset: Dataset,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List the data of each run, newest first."""
    row = find_dataset(api(), dataset, project)
    rows_shown(
        f"datasets/{row['id']}/runs",
        ("run", "stored", "rejected", "flagged", "bytes", "last_at", "compared", "pinned"),
        limit=limit,
        everything=everything,
    )


@commands.command()
def retention(
    dataset: Dataset,
    days: Days = None,
    runs: Runs = None,
    size: Size = None,
    project: ProjectOption = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Show or change the dataset's own retention. What is not set is that of the project."""
    show_retention("datasets", find_dataset(api(), dataset, project), days, runs, size)


@commands.command("delete-run")
def delete_run(
    dataset: Dataset,
    run: Annotated[int, typer.Argument(metavar="RUN", min=1, help="ID of the run.")],
    project: ProjectOption = None,
    profile: Profile = None,
) -> None:
    """Delete the items and files of a run. Pinned and active runs are refused."""
    row = find_dataset(api(), dataset, project)
    api().delete(f"datasets/{row['id']}/runs/{run}/data")
