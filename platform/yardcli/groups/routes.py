"""``crawlyard route``: what the routing rules do with an item."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from yardcli.errors import Exits, usage
from yardcli.here import (
    DEFAULT_LIMIT,
    Everything,
    Limit,
    Output,
    Profile,
    ProjectOption,
    api,
    data_of,
    format_in_use,
    group,
    one_shown,
    rows_shown,
)
from yardcli.lookup import find_project, project_id
from yardcli.output import Format, say

commands = group("route", "Routing: rules, and the items that went by them.")


@commands.command()
def explain(
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Whose rules.")],
    item: Annotated[str, typer.Argument(metavar="FILE", help="Of JSON or YAML; - is stdin.")],
    inbound: Annotated[str, typer.Option("--inbound", help="By which it would come in.")] = "",
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="Of the rules, not the active one.")
    ] = None,
    draft: Annotated[
        str | None, typer.Option("--draft", help="A file of rules that are not saved.")
    ] = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Say where an item would go, and why. Nothing is sent. Status 1 where no rule takes it."""
    found = data_of(item)
    if not isinstance(found, dict):
        raise usage(f"{item}: an item is an object")
    body: dict[str, Any] = {"item": found, "inbound": inbound}
    if version is not None:
        body["version"] = version
    if draft is not None:
        body["draft"] = data_of(draft)
    client = api()
    answer = client.post(f"routing/projects/{find_project(client, project)['id']}/explain", body)
    if format_in_use() is Format.TABLE:
        say(answer["text"])
    else:
        one_shown(answer)
    decision = answer.get("decision") or {}
    if not decision.get("outbound"):
        raise typer.Exit(Exits.NEGATIVE)


@commands.command()
def items(
    project: ProjectOption = None,
    state: Annotated[list[str] | None, typer.Option("--state", "-s", help="Repeatable.")] = None,
    outbound: Annotated[str | None, typer.Option("--outbound")] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Items that have been routed, newest first."""
    rows_shown(
        "routing/items",
        ("id", "task_uuid", "state", "inbound", "outbound", "reason", "received_at"),
        limit=limit,
        everything=everything,
        project=project_id(api(), project),
        state=state,
        outbound=outbound,
    )
