"""``crawlyard dead-letters``: messages that no consumer could process."""

from __future__ import annotations

from typing import Annotated

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

commands = group("dead-letters", "Messages that no consumer could process; for superusers.")
Letter = Annotated[int, typer.Argument(metavar="LETTER", min=1)]
_SHOWN = ("id", "state", "queue", "reason", "resolved_by", "resolved_at")


@commands.command("list")
def list_(
    state: Annotated[
        str | None, typer.Option("--state", "-s", help="held, requeued or dropped.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", help="Queue where the message failed.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List dead letters, newest first."""
    columns = ("id", "state", "queue", "body_size", "died_at", "reason")
    rows_shown(
        "dead-letters", columns, limit=limit, everything=everything, state=state, queue=queue
    )


@commands.command()
def show(letter: Letter, output: Output = None, profile: Profile = None) -> None:
    """Show a dead letter with its readable content."""
    one_shown(api().get(f"dead-letters/{letter}"))


@commands.command()
def requeue(letter: Letter, output: Output = None, profile: Profile = None) -> None:
    """Send a message back to the queue where it failed."""
    one_shown(api().post(f"dead-letters/{letter}/requeue"), _SHOWN)


@commands.command()
def drop(letter: Letter, output: Output = None, profile: Profile = None) -> None:
    """Delete a message permanently."""
    one_shown(api().post(f"dead-letters/{letter}/drop"), _SHOWN)
