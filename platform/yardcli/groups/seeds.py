"""``crawlyard seeds``."""

from __future__ import annotations

import sys
from pathlib import Path
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
    format_in_use,
    group,
    list_shown,
    one_shown,
    rows_shown,
)
from yardcli.errors import Exits, usage
from yardcli.lookup import find_frontier, project_id
from yardcli.output import Format

commands = group("seeds", "Seeds: what is to be crawled, each once.")
Frontier = Annotated[str, typer.Argument(metavar="FRONTIER", help="Name, PROJECT/NAME, or id.")]


@commands.command("list")
def list_(
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List frontiers."""
    names = ("id", "project", "name", "segments", "is_paused", "is_frozen", "description")
    of = project_id(api(), project)
    columns = [(name.removeprefix("is_"), name) for name in names]
    rows_shown("frontiers", columns, limit=limit, everything=everything, project=of)


@commands.command()
def add(
    frontier: Frontier,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="One seed a line, or .jsonl; - is stdin.")
    ],
    lines: Annotated[
        str | None, typer.Option("--lines", help="text or json; default: by the file's name.")
    ] = None,
    project: ProjectOption = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Add the seeds of a file; known ones stay unchanged. Status 1 if one is refused."""
    if lines not in (None, "text", "json"):
        raise usage("--lines: text or json")
    is_json = lines == "json" or (lines is None and file.endswith((".jsonl", ".ndjson")))
    kind = "application/x-ndjson" if is_json else "text/plain; charset=utf-8"
    client = api()
    address = f"frontiers/{find_frontier(client, frontier, project)['id']}/import"
    if file == "-":
        answer = client.upload(address, sys.stdin.buffer, kind)
    else:
        try:
            with Path(file).open("rb") as opened:
                answer = client.upload(address, opened, kind)
        except OSError as error:
            if error.filename is None:
                raise
            raise usage(f"{file}: {error.strerror}") from error
    one_shown(answer)
    if answer["refused"]:
        raise typer.Exit(Exits.NEGATIVE)


@commands.command()
def lookup(
    frontier: Frontier,
    seed: Annotated[str, typer.Argument(help="Data of the seed, such as a URL.")],
    project: ProjectOption = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Check whether a seed would be new, and its state if not. Status 1 if it is unknown."""
    client = api()
    row = find_frontier(client, frontier, project)
    answer = client.get(f"frontiers/{row['id']}/look-up", data=seed)["results"][0]
    one_shown(answer)
    if answer["known"] is None:
        raise typer.Exit(Exits.NEGATIVE)


@commands.command()
def stats(
    frontier: Frontier,
    project: ProjectOption = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Show counts of seeds by state and segment."""
    client = api()
    row = find_frontier(client, frontier, project)
    answer = client.get(f"frontiers/{row['id']}/stats")
    if format_in_use() is not Format.TABLE:
        one_shown(answer)
        return
    rows = [{"segment": "all", **answer["totals"], "balances": answer["balances"]}]
    rows += [
        {
            "segment": segment["begins_at"] or segment["segment"],
            **segment["books"],
            "balances": segment["balances"],
        }
        for segment in answer["results"]
    ]
    list_shown(rows, [(name, name) for name in rows[0]])
