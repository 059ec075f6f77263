"""``crawlyard runs``."""

from __future__ import annotations

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
    format_in_use,
    group,
    one_shown,
    rows_shown,
)
from yardcli.groups.jobs import RUN, Patience
from yardcli.groups.jobs import start as start_job
from yardcli.lookup import find_job, project_id
from yardcli.output import Format, note
from yardcli.watch import follow, line_shown, outcome_of, wait

commands = group("runs", "Runs: single executions of jobs.")
commands.command("start")(start_job)
_TITLES = {"job_name": "job", "requests_failed": "failed"}
Run = Annotated[int, typer.Argument(metavar="RUN", min=1)]


@commands.command("list")
def list_(
    job: Annotated[str | None, typer.Option("--job", "-j", help="Runs of this job.")] = None,
    project: ProjectOption = None,
    state: Annotated[list[str] | None, typer.Option("--state", "-s", help="Repeatable.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Queued at this time or later.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List runs, newest first."""
    names = (
        "id",
        "job_name",
        "state",
        "outcome",
        "items",
        "requests_failed",
        "trigger",
        "host",
        "started_at",
        "ended_at",
        "reason",
    )
    client = api()
    rows_shown(
        "runs",
        [(_TITLES.get(name, name), name) for name in names],
        limit=limit,
        everything=everything,
        job=find_job(client, job, project)["id"] if job else None,
        project=project_id(client, project),
        state=state,
        since=since,
    )


@commands.command()
def show(run: Run, output: Output = None, profile: Profile = None) -> None:
    """Show a run with the history of its states."""
    one_shown(api().get(f"runs/{run}"))


@commands.command("wait")
def wait_(
    run: Run, timeout: Patience = None, output: Output = None, profile: Profile = None
) -> None:
    """Wait until a run has ended; the exit status says how."""
    ended = wait(api(), f"runs/{run}", patience=timeout)
    one_shown(ended, RUN)
    if ended["active"]:
        note(f"run {run} goes on")
    raise typer.Exit(outcome_of(ended))


@commands.command()
def pause(run: Run, output: Output = None, profile: Profile = None) -> None:
    """Pause a run: it sends nothing until it is resumed."""
    one_shown(api().post(f"runs/{run}/pause"), RUN)


@commands.command()
def resume(run: Run, output: Output = None, profile: Profile = None) -> None:
    """Resume a run."""
    one_shown(api().post(f"runs/{run}/resume"), RUN)


@commands.command()
def stop(run: Run, output: Output = None, profile: Profile = None) -> None:
    """Stop a run."""
    one_shown(api().post(f"runs/{run}/stop"), RUN)


@commands.command()
def restart(run: Run, output: Output = None, profile: Profile = None) -> None:
    """Stop a run and start it again on the same host."""
    one_shown(api().post(f"runs/{run}/restart"), RUN)


@commands.command()
def counters(run: Run, output: Output = None, profile: Profile = None) -> None:
    """Show the request counters of a run."""
    one_shown(api().get(f"runs/{run}/counters"))


@commands.command()
def logs(
    run: Run,
    follow_it: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new lines as they arrive.")
    ] = False,
    tail: Annotated[int, typer.Option("--tail", "-n", min=1, help="Number of last lines.")] = 200,
    level: Annotated[
        list[str] | None, typer.Option("--level", help="Only lines of these levels.")
    ] = None,
    contains: Annotated[
        str | None, typer.Option("--contains", help="Only lines with this text.")
    ] = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Show the log of a run; -o json prints one object a line."""
    client = api()
    show_line = line_shown if format_in_use() is Format.TABLE else _line_as_json
    if follow_it:
        if level or contains:
            raise typer.BadParameter("--level and --contains search; they do not go with --follow")
        follow(client, f"runs/{run}", tail=tail, show=show_line)
        return
    page = client.get(f"runs/{run}/logs", tail=tail, level=level, contains=contains)
    for line in page["results"]:
        show_line(line)


@commands.command()
def errors(
    run: Run,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List failed requests of a run; the first error of its log goes to stderr."""
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


@commands.command()
def replay(
    run: Run,
    fetch_missing: Annotated[
        bool, typer.Option("--fetch-missing", help="Fetch what was not kept; else it fails.")
    ] = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Run again on the kept pages of a run, without a request to any site."""
    body = {"missing": "fetch" if fetch_missing else "fail"}
    one_shown(api().post(f"runs/{run}/replay", body), RUN)
