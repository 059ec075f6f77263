"""``crawlyard pages``: the pages that are kept of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from yardcli.context import Limit, Output, Profile, api, format_in_use, group, list_shown, one_shown
from yardcli.downloads import download
from yardcli.output import Format, note

commands = group("pages", "Pages: the responses that are kept of runs.")
_PAGE: Final = 1000
_ACCOUNTS: Final = ("chosen", "kept", "not_kept", "waiting", "deleted")

Run = Annotated[int, typer.Argument(metavar="RUN", min=1)]


@commands.command("list")
def list_(
    run: Run,
    text: Annotated[
        str | None, typer.Option("--text", help="Only pages that contain this in a field.")
    ] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", help="FIELD:OP:VALUE, such as status:at_least:400. Repeatable."),
    ] = None,
    limit: Limit = 50,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List the kept pages of a run."""
    query = {"text": text, "filter": filters, "limit": min(limit, _PAGE)}
    rows = [row["item"] for row in api().get(f"runs/{run}/pages", **query)["results"]]
    list_shown(rows, ("status", "method", "url", "type", "size", "warc", "record"))


@commands.command()
def stats(run: Run, output: Output = None, profile: Profile = None) -> None:
    """Show how many pages were chosen, kept, and not kept, with the reasons."""
    accounting = api().get(f"runs/{run}/pages/accounting")
    if format_in_use() is not Format.TABLE:
        one_shown(accounting)
        return
    one_shown(accounting, _ACCOUNTS)
    reasons = [{"reason": why, "pages": n} for why, n in accounting["reasons"].items()]
    list_shown(reasons, ("reason", "pages"))


@commands.command()
def get(
    run: Run,
    to: Annotated[Path, typer.Option("--to", help="Write to this file, such as run.warc.gz.")],
    profile: Profile = None,
) -> None:
    """Download the kept pages of a run as one WARC file."""
    note(f"{to}: {download(api(), f'runs/{run}/pages/warc', {}, to)}")
