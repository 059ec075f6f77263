"""``crawlyard trials``: images tried on the kept pages of an earlier run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from yardcli.client import Client
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
from yardcli.errors import CommandFailed, Exits
from yardcli.lookup import find_job

commands = group("trials", "Image trials: a new image on the kept pages of an earlier run.")
Job = Annotated[str, typer.Argument(metavar="JOB", help="Name, PROJECT/NAME, or id.")]
Trial = Annotated[int, typer.Argument(metavar="TRIAL", min=1, help="ID of the trial.")]
_SHOWN = ("id", "image", "state", "recorded_run", "run", "reason", "created_at", "activated_at")


@commands.command("list")
def list_(
    job: Job,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List the trials of a job, newest first."""
    found = find_job(api(), job, project)
    rows_shown("image-trials", _SHOWN, limit=limit, everything=everything, job=found["id"])


@commands.command()
def start(
    job: Job,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="NAME:TAG, or id.")],
    project: ProjectOption = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Run a job with another image on the pages of its last recorded run."""
    client = api()
    found = find_job(client, job, project)
    body = {"job": found["id"], "image": _image_id(client, found, image)}
    one_shown(client.post("image-trials", body), _SHOWN)


@commands.command()
def show(trial: Trial, output: Output = None, profile: Profile = None) -> None:
    """Show a trial with the comparison of both runs."""
    one_shown(api().get(f"image-trials/{trial}"))


@commands.command()
def use(
    trial: Trial,
    note: Annotated[
        str, typer.Option("--note", help="Why, if the trial was not passed; for the audit trail.")
    ] = "",
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Make the image of a trial the image of its job."""
    one_shown(api().post(f"image-trials/{trial}/activate", {"note": note}), _SHOWN)


def _image_id(client: Client, job: dict[str, Any], text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    name, _, tag = text.rpartition(":")
    rows = client.rows("images", None, project=job["project"])
    found = [row for row in rows if (row["name"], row["tag"]) == (name, tag)]
    if not found:
        raise CommandFailed(Exits.NOT_FOUND, f"the project of the job has no image {text}")
    return int(found[0]["id"])
