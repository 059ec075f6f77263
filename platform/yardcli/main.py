"""``crawlyard``: the REST API for people at a terminal and for scripts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from yardcli.context import Output, Profile, forget_choices
from yardcli.errors import CommandFailed
from yardcli.groups import (
    agents,
    builds,
    call,
    channels,
    configuration,
    datasets,
    dead_letters,
    deliveries,
    incidents,
    items,
    jobs,
    login,
    outbox,
    pages,
    projects,
    requests,
    routes,
    runs,
    seeds,
    sources,
    trials,
)
from yardcli.output import note

app = typer.Typer(
    name="crawlyard",
    help="Jobs, runs, items, agents, routing and stored requests of a Crawlyard server, over REST.",
    no_args_is_help=True,
    # Rich is imported only for output to a terminal.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
login.add_to(app)
call.add_to(app)
for _module in (
    projects,
    builds,
    jobs,
    runs,
    items,
    requests,
    datasets,
    trials,
    agents,
    routes,
    seeds,
    sources,
    configuration,
    deliveries,
    incidents,
    channels,
    dead_letters,
    outbox,
    pages,
):
    app.add_typer(_module.commands)


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"crawlyard {version('crawlyard')}")
        raise typer.Exit


@app.callback()
def options(
    output: Output = None,
    profile: Profile = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Set options for the command that follows."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command and exit with its status; see docs/cli.md."""
    forget_choices()
    try:
        try:
            app(args=None if argv is None else list(argv), prog_name="crawlyard")
        finally:
            forget_choices()
            # Flush here: at interpreter exit a broken pipe could not be handled.
            sys.stdout.flush()
    except CommandFailed as error:
        note(f"error: {error}")
        for line in error.more:
            note(line)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`); discard the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
