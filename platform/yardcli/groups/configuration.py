"""``crawlyard config``: versions of rules and settings, compared and switched."""

from __future__ import annotations

import json
import sys
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
    content_of,
    format_in_use,
    group,
    list_shown,
    one_shown,
    rows_shown,
)
from yardcli.errors import CommandFailed, Exits, usage
from yardcli.lookup import find_configuration, find_version, project_id
from yardcli.output import Format, note, say

commands = group("config", "Configuration: versions of rules and settings.")
Kind = Annotated[str, typer.Argument(metavar="KIND", help="routing, biz, sources, agents, ...")]
Note = Annotated[str, typer.Option("--note", "-m", help="Reason, stored with the version.")]
_MARKS = {"added": "+", "removed": "-", "changed": "~", "moved": ">"}


@commands.command("list")
def list_(
    kind: Annotated[str | None, typer.Option("--kind")] = None,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List configurations and their active versions."""
    columns = ("id", "kind", "project", "newest", "active", "running", "changed_at")
    of = project_id(api(), project)
    rows_shown("config", columns, limit=limit, everything=everything, kind=kind, project=of)


@commands.command()
def versions(
    kind: Kind,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List versions of a configuration, newest first."""
    names = ("number", "active", "author_label", "created_at", "summary", "note")
    rows_shown(
        "config/versions",
        [(name.removesuffix("_label"), name) for name in names],
        limit=limit,
        everything=everything,
        kind=kind,
        **_owner_filter(api(), project),
    )


@commands.command()
def get(
    kind: Kind,
    project: ProjectOption = None,
    version: Annotated[
        int | None,
        typer.Option("--version", min=1, help="Default: the active, else the newest one."),
    ] = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Print a version as a file, which `apply` accepts; with -o its bare data."""
    client = api()
    configuration = find_configuration(client, kind, project)
    chosen = find_version(
        client, configuration, version or configuration["active"] or configuration["newest"]
    )
    address = f"config/versions/{chosen['id']}"
    if format_in_use() is Format.TABLE:
        sys.stdout.write(client.get(f"{address}/file")["text"])
    else:
        one_shown(client.get(address)["data"])


@commands.command()
def apply(
    kind: Kind,
    file: Annotated[str, typer.Argument(metavar="FILE", help="- is stdin.")],
    project: ProjectOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    activate_it: Annotated[
        bool, typer.Option("--activate/--no-activate", help="Activate the version.")
    ] = True,
    text: Note = "",
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Save a file as a version and activate it. Status 2: invalid; 6: another was saved."""
    client = api()
    content = content_of(file)
    configuration = _configuration_or_none(client, kind, project)
    if dry_run:
        _try(client, configuration, kind, content)
        return
    of = project_id(client, project)
    body: dict[str, Any] = {
        "kind": kind,
        "project": of,
        "text": content,
        "note": text,
        "activate": activate_it,
        "based_on": 0 if configuration is None else configuration["newest"] or 0,
    }
    saved = client.post("config/versions", body)
    for warning in saved["warnings"]:
        note(f"warning: {warning}")
    outcome = "saved" if saved["created"] else "unchanged"
    one_shown(
        {"became": outcome, **saved["version"]}, ("became", "kind", "number", "active", "summary")
    )


@commands.command()
def activate(
    kind: Kind,
    number: Annotated[int, typer.Argument(min=1)],
    project: ProjectOption = None,
    text: Note = "",
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Activate a version in every process."""
    client = api()
    version = find_version(client, find_configuration(client, kind, project), number)
    one_shown(client.post(f"config/versions/{version['id']}/activate", {"note": text}))


@commands.command()
def revert(
    kind: Kind,
    project: ProjectOption = None,
    to: Annotated[
        int | None, typer.Option("--to", min=1, help="Default: the version active before.")
    ] = None,
    text: Note = "",
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Go back to a version that was active before."""
    client = api()
    configuration = find_configuration(client, kind, project)
    one_shown(client.post(f"config/{configuration['id']}/revert", {"note": text, "to": to}))


@commands.command()
def diff(
    kind: Kind,
    old: Annotated[int | None, typer.Argument(min=0, help="Default: the active one.")] = None,
    new: Annotated[int | None, typer.Argument(min=1, help="Default: the newest one.")] = None,
    project: ProjectOption = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Show the changes between two versions. Status 1 if there are any."""
    client = api()
    configuration = find_configuration(client, kind, project)
    newest = new or configuration["newest"]
    if newest is None:
        raise CommandFailed(Exits.NOT_FOUND, "there is no version yet")
    against = (configuration["active"] or 0) if old is None else old
    version = find_version(client, configuration, newest)
    answer = client.get(f"config/versions/{version['id']}/diff", against=str(against))
    if answer["changes"]:
        _print_changes(answer["changes"])
        raise typer.Exit(Exits.NEGATIVE)


@commands.command()
def running(
    kind: Kind, project: ProjectOption = None, output: Output = None, profile: Profile = None
) -> None:
    """Show which processes run which version. Status 1 if one is behind."""
    client = api()
    configuration = find_configuration(client, kind, project)
    rows = client.get(f"config/{configuration['id']}/running")
    list_shown(rows, ("kind", "name", "host", "pid", "number", "current", "problem"))
    if not all(row["current"] for row in rows):
        raise typer.Exit(Exits.NEGATIVE)


def _owner_filter(client: Client, project: str | None) -> dict[str, Any]:
    return {"platform": "true"} if project is None else {"project": project_id(client, project)}


def _configuration_or_none(client: Client, kind: str, project: str | None) -> dict[str, Any] | None:
    rows = list(client.rows("config", 2, kind=kind, **_owner_filter(client, project)))
    return rows[0] if rows else None


def _try(client: Client, configuration: dict[str, Any] | None, kind: str, content: str) -> None:
    if configuration is None:
        raise usage(f"nothing of kind {kind} is there yet to compare with; apply it, --no-activate")
    answer = client.post(f"config/{configuration['id']}/check", {"text": content})
    for problem in answer["problems"]:
        word = "warning" if problem["warning"] else "error"
        note(f"{word}: {problem['place']}: {problem['text']}")
    _print_changes(answer["changes"])
    if not answer["valid"]:
        raise typer.Exit(Exits.USAGE)


def _print_changes(changes: list[dict[str, Any]]) -> None:
    if format_in_use() is not Format.TABLE:
        list_shown(changes, ())
        return
    for change in changes:
        values = [
            json.dumps(change[name], ensure_ascii=False)
            for name in ("before", "after")
            if change[name] is not None
        ]
        say(f"{_MARKS[change['what']]} {change['place']}: {' -> '.join(values)}")
    if not changes:
        note("no changes")
