"""``crawlyard runs``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from yardcli.groups.jobs import RUN, Patience
from yardcli.groups.jobs import start as start_job
from yardcli.here import (
    DEFAULT_LIMIT,
    Everything,
    Limit,
    Output,
    Profile,
    ProjectOption,
    api,
    format_in_use,
    group,
    one_shown,
    rows_shown,
)
from yardcli.lookup import find_job, project_id
from yardcli.output import Format, note
from yardcli.watch import follow, line_shown, outcome_of, wait

commands = group("runs", "Runs: single executions of jobs.")
commands.command("start")(start_job)
Run = Annotated[int, typer.Argument(metavar="RUN", min=1)]


@commands.command("list")
def list_(
    job: Annotated[str | None, typer.Option("--job", "-j", help="Of this job.")] = None,
    project: ProjectOption = None,
    state: Annotated[list[str] | None, typer.Option("--state", "-s", help="Repeatable.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="Queued then or later.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Runs, newest first."""
    names = (
        "id",
        "job_name",
        "state",
        "outcome",
        "trigger",
        "host",
        "started_at",
        "ended_at",
        "reason",
    )
    client = api()
    rows_shown(
        "runs",
        [(each.removesuffix("_name"), each) for each in names],
        limit=limit,
        everything=everything,
        job=find_job(client, job, project)["id"] if job else None,
        project=project_id(client, project),
        state=state,
        since=since,
    )


@commands.command()
def show(run: Run, output: Output = None, profile: Profile = None) -> None:
    """One of them, with the states it has been in."""
    one_shown(api().get(f"runs/{run}"))


@commands.command("wait")
def wait_(
    run: Run, timeout: Patience = None, output: Output = None, profile: Profile = None
) -> None:
    """Until it has ended; the exit status says how."""
    found = wait(api(), f"runs/{run}", patience=timeout)
    one_shown(found, RUN)
    if found["active"]:
        note(f"run {run} goes on")
    raise typer.Exit(outcome_of(found))


@commands.command()
def pause(run: Run, output: Output = None, profile: Profile = None) -> None:
    """Ask it to send nothing more until it is resumed."""
    one_shown(api().post(f"runs/{run}/pause"), RUN)


@commands.command()
def resume(run: Run, output: Output = None, profile: Profile = None) -> None:
    """Ask it to go on."""
    one_shown(api().post(f"runs/{run}/resume"), RUN)


@commands.command()
def stop(run: Run, output: Output = None, profile: Profile = None) -> None:
    """Ask it to stop."""
    one_shown(api().post(f"runs/{run}/stop"), RUN)


@commands.command()
def restart(run: Run, output: Output = None, profile: Profile = None) -> None:
    """Ask it to exit, and start it again in the same place."""
    one_shown(api().post(f"runs/{run}/restart"), RUN)


@commands.command()
def counters(run: Run, output: Output = None, profile: Profile = None) -> None:
    """Its requests, counted."""
    one_shown(api().get(f"runs/{run}/counters"))


@commands.command()
def logs(
    run: Run,
    follow_it: Annotated[bool, typer.Option("--follow", "-f", help="And what comes.")] = False,
    tail: Annotated[int, typer.Option("--tail", "-n", min=1, help="So many last lines.")] = 200,
    level: Annotated[list[str] | None, typer.Option("--level", help="Only of these.")] = None,
    contains: Annotated[str | None, typer.Option("--contains", help="Only with this.")] = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """What it has written; -o json: one object a line."""
    client = api()
    show_line = line_shown if format_in_use() is Format.TABLE else _line_as_json
    if follow_it:
        if level or contains:
            raise typer.BadParameter("--level and --contains search; they do not go with --follow")
        follow(client, f"runs/{run}", tail=tail, show=show_line)
        return
    found = client.get(f"runs/{run}/logs", tail=tail, level=level, contains=contains)
    for line in found["results"]:
        show_line(line)


@commands.command()
def errors(
    run: Run,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Requests of it that failed; the first error of its log goes to stderr."""
    first = api().get(f"runs/{run}/logs/first-error")["line"]
    if first is not None:
        note(f"{first['at']} {first['level']} {first['text']}")
    columns = ("id", "at", "status", "reason", "url")
    rows_shown(f"runs/{run}/failures", columns, limit=limit, everything=everything)


def _line_as_json(line: dict[str, Any]) -> None:
    import json
    import sys

    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    sys.stdout.flush()
