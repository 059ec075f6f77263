"""``crawlyard channels``: notification channels, and subscriptions to runs."""

from __future__ import annotations

import time
from typing import Annotated, Any

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
from yardcli.errors import CommandFailed, Exits
from yardcli.lookup import find_job, project_id

commands = group("channels", "Notification channels, and who is notified of runs.")
ANSWER_SECONDS = 30.0
Job = Annotated[str | None, typer.Option("--job", "-j", help="Name or ID of a job.")]


@commands.command("list")
def list_(
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List channels."""
    rows_shown(
        "channels",
        ("id", "project", "name", "kind", "enabled", "host"),
        limit=limit,
        everything=everything,
        project=project_id(api(), project),
    )


@commands.command("test")
def send_test(
    channel: Annotated[int, typer.Argument(metavar="CHANNEL", min=1)],
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Send a test and show the answer of the service; fails if it was not accepted."""
    notice: dict[str, Any] = api().post(f"channels/{channel}/test", {})
    until = time.monotonic() + ANSWER_SECONDS
    while notice["state"] == "waiting" and time.monotonic() < until:
        time.sleep(0.5)
        notice = api().get(f"notices/{notice['id']}")
    one_shown(notice, ("id", "state", "problem", "answer"))
    if notice["state"] != "sent":
        why = notice["problem"] or "no worker has tried it yet"
        raise CommandFailed(Exits.NEGATIVE, f"not sent: {why}")


@commands.command()
def subscribe(
    recipient: Annotated[str, typer.Argument(help="Name of a channel, or @ and a user name.")],
    project: ProjectOption = None,
    job: Job = None,
    each_end: Annotated[
        bool, typer.Option("--each-end", help="Of each end of a run, not only of failures.")
    ] = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Notify a recipient of the runs of a job, a project or (neither) all projects."""
    found = None if job is None else find_job(api(), job, project)["id"]
    body = {
        "channel": recipient,
        "job": found,
        "project": project_id(api(), project) if found is None else None,
        "when": "end" if each_end else "failure",
    }
    one_shown(api().post("run-subscriptions", body))


@commands.command()
def subscriptions(
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List subscriptions to runs."""
    rows_shown(
        "run-subscriptions",
        ("id", "project", "job", "channel", "when"),
        limit=limit,
        everything=everything,
        project=project_id(api(), project),
    )


@commands.command()
def unsubscribe(
    subscription: Annotated[int, typer.Argument(metavar="SUBSCRIPTION", min=1)],
    profile: Profile = None,
) -> None:
    """End a subscription."""
    api().delete(f"run-subscriptions/{subscription}")


@commands.command("notify-me")
def notify_me(
    job: Annotated[str, typer.Argument(help="Name or ID of a job.")],
    when: Annotated[str, typer.Option("--when", help="failure, end or off.")] = "failure",
    project: ProjectOption = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Be notified by mail of a job's failures, of each end of a run, or no longer."""
    found = find_job(api(), job, project)["id"]
    one_shown(api().post(f"jobs/{found}/notify-me", {"when": when}))
