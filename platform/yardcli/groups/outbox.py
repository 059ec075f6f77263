"""``crawlyard outbox``: committed messages that are not published yet."""

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
from yardcli.output import note

commands = group("outbox", "Messages that wait to be sent; for superusers.")
Message = Annotated[int, typer.Argument(metavar="MESSAGE", min=1)]
_SHOWN = ("id", "message_id", "exchange", "key", "attempts", "next_try_at", "error")


@commands.command("list")
def list_(
    failed: Annotated[
        bool | None,
        typer.Option("--failed/--fresh", help="Messages with or without a failed attempt."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Routing key.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List waiting messages, oldest first."""
    columns = ("id", "exchange", "key", "attempts", "created_at", "next_try_at", "error")
    rows_shown("outbox", columns, limit=limit, everything=everything, failed=failed, key=key)


@commands.command()
def show(message: Message, output: Output = None, profile: Profile = None) -> None:
    """Show a message with its readable content."""
    one_shown(api().get(f"outbox/{message}"))


@commands.command()
def retry(message: Message, output: Output = None, profile: Profile = None) -> None:
    """Publish a message now instead of at its next attempt."""
    one_shown(api().post(f"outbox/{message}/retry"), _SHOWN)


@commands.command()
def drop(message: Message, output: Output = None, profile: Profile = None) -> None:
    """Drop a waiting message; a periodic sweep finds its work later."""
    api().call("DELETE", f"outbox/{message}")
    note(f"message {message} is dropped")
