"""``crawlyard route``: evaluation of routing rules, and routed tasks."""

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
    data_of,
    format_in_use,
    group,
    one_shown,
    rows_shown,
)
from yardcli.errors import Exits, usage
from yardcli.lookup import find_project, project_id
from yardcli.output import Format, say

commands = group("route", "Routing: rules, and the items that went by them.")


@commands.command()
def explain(
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Project of the rules.")],
    item: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON or YAML file with the task; - is stdin.")
    ],
    inbound: Annotated[str, typer.Option("--inbound", help="Inbound of the task.")] = "",
    version: Annotated[
        int | None,
        typer.Option("--version", min=1, help="Version of the rules instead of the active one."),
    ] = None,
    draft: Annotated[str | None, typer.Option("--draft", help="File with unsaved rules.")] = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Explain where the rules send a task. Nothing is sent. Status 1 if no rule matches."""
    task = data_of(item)
    if not isinstance(task, dict):
        raise usage(f"{item}: an item is an object")
    body: dict[str, Any] = {"item": task, "inbound": inbound}
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
    """List routed tasks, newest first."""
    rows_shown(
        "routing/items",
        ("id", "task_uuid", "state", "inbound", "outbound", "reason", "received_at"),
        limit=limit,
        everything=everything,
        project=project_id(api(), project),
        state=state,
        outbound=outbound,
    )
