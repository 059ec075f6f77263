"""``crawlyard agents``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from yardcli.context import (
    DEFAULT_LIMIT,
    Everything,
    Limit,
    Output,
    Profile,
    api,
    group,
    one_shown,
    rows_shown,
)
from yardcli.lookup import find_agent

commands = group("agents", "Agents: the processes that download.")
Agent = Annotated[str, typer.Argument(metavar="AGENT", help="Name or id.")]
_SHOWN = ("id", "agent_id", "name", "mode", "alive", "downloaders", "qps")


@commands.command("list")
def list_(
    alive: Annotated[bool | None, typer.Option("--alive/--dead")] = None,
    mode: Annotated[str | None, typer.Option("--mode")] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List registered agents."""
    columns = (
        *("id", ("agent", "agent_id"), "name", "mode", "alive", "downloaders", "qps"),
        *(("cpu", "cpu_percent"), "version"),
    )
    rows_shown("agents", columns, limit=limit, everything=everything, alive=alive, mode=mode)


@commands.command()
def show(agent: Agent, output: Output = None, profile: Profile = None) -> None:
    """Show an agent."""
    one_shown(find_agent(api(), agent))


@commands.command()
def drain(agent: Agent, output: Output = None, profile: Profile = None) -> None:
    """Assign no new work to an agent; it finishes its current work."""
    _ask(agent, "drain")


@commands.command()
def enable(agent: Agent, output: Output = None, profile: Profile = None) -> None:
    """Assign work to an agent again."""
    _ask(agent, "enable")


@commands.command()
def disable(agent: Agent, output: Output = None, profile: Profile = None) -> None:
    """Withdraw all work from an agent at once."""
    _ask(agent, "disable")


@commands.command("exit")
def exit_(
    agent: Agent,
    reason: Annotated[
        str, typer.Option("--reason", help="Reason, written to the agent's log.")
    ] = "",
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Stop an agent's process."""
    _ask(agent, "exit", {"reason": reason})


def _ask(agent: str, action: str, body: dict[str, Any] | None = None) -> None:
    client = api()
    row = find_agent(client, agent)
    one_shown(client.post(f"agents/{row['id']}/{action}", body), _SHOWN)
