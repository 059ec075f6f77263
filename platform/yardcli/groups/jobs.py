"""``crawlyard jobs``."""

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
    pairs,
    rows_shown,
)
from yardcli.lookup import find_job, project_id
from yardcli.output import note
from yardcli.watch import outcome_of, wait

commands = group("jobs", "Jobs: what is run, and when.")
Job = Annotated[str, typer.Argument(metavar="JOB", help="Name, PROJECT/NAME, or id.")]
Arguments = Annotated[
    list[str] | None, typer.Option("--argument", "-a", help="KEY=VALUE for the spider.")
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until the run has ended.")]
Patience = Annotated[
    float | None, typer.Option("--timeout", min=0, help="Limit of waiting in seconds.")
]
RUN = (
    "id",
    "job_name",
    "state",
    "outcome",
    "reason",
    "host",
    "created_at",
    "started_at",
    "ended_at",
)


@commands.command("list")
def list_(
    project: ProjectOption = None,
    name: Annotated[str | None, typer.Option("--name", help="Part of the name.")] = None,
    enabled: Annotated[bool | None, typer.Option("--enabled/--disabled")] = None,
    tag: Annotated[str | None, typer.Option("--tag")] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List jobs."""
    rows_shown(
        "jobs",
        ("id", "project", "name", "enabled", "cron", "spider"),
        limit=limit,
        everything=everything,
        project=project_id(api(), project),
        name=name,
        enabled=enabled,
        tag=tag,
    )


@commands.command()
def show(
    job: Job, project: ProjectOption = None, output: Output = None, profile: Profile = None
) -> None:
    """Show a job."""
    one_shown(find_job(api(), job, project))


@commands.command()
def start(
    job: Job,
    arguments: Arguments = None,
    wait_for_it: Wait = False,
    timeout: Patience = None,
    project: ProjectOption = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Start a run of a job; with --wait the exit status says how it ended."""
    client = api()
    row = find_job(client, job, project)
    body = {"arguments": pairs(arguments, option="--argument")} if arguments else {}
    run = client.post(f"jobs/{row['id']}/start", body)
    if not wait_for_it:
        one_shown(run, RUN)
        return
    begin = f"run {run['id']} of {run['job_name']}"
    run = wait(client, f"runs/{run['id']}", patience=timeout, begin=begin)
    one_shown(run, RUN)
    if run["active"]:
        note(f"run {run['id']} goes on")
    raise typer.Exit(outcome_of(run))


@commands.command()
def enable(
    job: Job, project: ProjectOption = None, output: Output = None, profile: Profile = None
) -> None:
    """Allow a job to be started, also by its schedule."""
    _switch(job, project, enabled=True)


@commands.command()
def disable(
    job: Job, project: ProjectOption = None, output: Output = None, profile: Profile = None
) -> None:
    """Disable a job: it cannot be started. Active runs continue."""
    _switch(job, project, enabled=False)


@commands.command()
def pause(
    job: Job, project: ProjectOption = None, output: Output = None, profile: Profile = None
) -> None:
    """Pause every run of a job."""
    _ask_all(job, project, "pause")


@commands.command()
def resume(
    job: Job, project: ProjectOption = None, output: Output = None, profile: Profile = None
) -> None:
    """Resume every paused run of a job."""
    _ask_all(job, project, "resume")


@commands.command()
def stop(
    job: Job, project: ProjectOption = None, output: Output = None, profile: Profile = None
) -> None:
    """Stop every run of a job."""
    _ask_all(job, project, "stop")


@commands.command()
def schedule(
    job: Job, project: ProjectOption = None, output: Output = None, profile: Profile = None
) -> None:
    """Show the next planned starts of a job."""
    client = api()
    one_shown(client.get(f"jobs/{find_job(client, job, project)['id']}/schedule"))


def _switch(job: str, project: str | None, *, enabled: bool) -> None:
    client = api()
    row = find_job(client, job, project)
    answer = client.patch(f"jobs/{row['id']}", {"enabled": enabled})
    one_shown(answer, ("id", "project", "name", "enabled"))


def _ask_all(job: str, project: str | None, action: str) -> None:
    client = api()
    one_shown(client.post(f"jobs/{find_job(client, job, project)['id']}/{action}"))
