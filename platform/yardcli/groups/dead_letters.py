"""``crawlyard dead-letters``: messages that no consumer could process."""

from __future__ import annotations

from typing import Annotated

import typer

from yardcli.here import (
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

commands = group("dead-letters", "Messages that nobody could use; for superusers.")
Letter = Annotated[int, typer.Argument(metavar="LETTER", min=1)]
_SHOWN = ("id", "state", "queue", "reason", "resolved_by", "resolved_at")


@commands.command("list")
def list_(
    state: Annotated[
        str | None, typer.Option("--state", "-s", help="held, requeued or dropped.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Where it died.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Dead letters, newest first."""
    columns = ("id", "state", "queue", "body_size", "died_at", "reason")
    rows_shown(
        "dead-letters", columns, limit=limit, everything=everything, state=state, queue=queue
    )


@commands.command()
def show(letter: Letter, output: Output = None, profile: Profile = None) -> None:
    """One of them, with what can be read of it."""
    one_shown(api().get(f"dead-letters/{letter}"))


@commands.command()
def requeue(letter: Letter, output: Output = None, profile: Profile = None) -> None:
    """Send it back to the queue where it died."""
    one_shown(api().post(f"dead-letters/{letter}/requeue"), _SHOWN)


@commands.command()
def drop(letter: Letter, output: Output = None, profile: Profile = None) -> None:
    """Drop the message for good."""
    one_shown(api().post(f"dead-letters/{letter}/drop"), _SHOWN)
