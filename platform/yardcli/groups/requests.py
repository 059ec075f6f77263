"""``crawlyard requests``: what became of each request of a run, and failed ones again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from yardcli.context import Output, Profile, api, format_in_use, list_shown, one_shown
from yardcli.downloads import download, fetch_pages
from yardcli.errors import usage
from yardcli.groups.items import Fields, Filters, ItemFormat, Run, Text
from yardcli.groups.stored import commands
from yardcli.output import Format, note


@commands.command()
def get(
    run: Run,
    form: Annotated[ItemFormat, typer.Option("--format", "-f")] = ItemFormat.JSONL,
    fields: Fields = None,
    filters: Filters = None,
    text: Text = None,
    sort: Annotated[
        str | None, typer.Option("--sort", help="A field; -FIELD for descending order.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Maximum number; jsonl only.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Write to this file.")] = None,
    profile: Profile = None,
) -> None:
    """Download the ended requests of a run, all of them unless limited or filtered."""
    if limit is not None and form is not ItemFormat.JSONL:
        raise usage("--limit needs the format jsonl")
    if to is None and form in (ItemFormat.XLSX, ItemFormat.PARQUET) and sys.stdout.isatty():
        raise usage(f"{form} is binary: write it to a file with --to")
    path = f"runs/{run}/requests"
    query: dict[str, Any] = {"fields": fields, "filter": filters, "text": text, "sort": sort}
    if limit is not None:
        count = fetch_pages(api(), path, query, limit=limit, to=to, resumed=None)
    else:
        count = download(api(), path, {**query, "format": form.value, "download": "true"}, to)
    if to is not None:
        note(f"{to}: {count}")


@commands.command()
def failures(run: Run, output: Output = None, profile: Profile = None) -> None:
    """List the groups of a run's failed requests, the largest first."""
    found = api().get(f"runs/{run}/requests/failures")
    list_shown(found, ("count", "kind", "group", "url"))


@commands.command()
def retry(
    run: Run,
    filters: Filters = None,
    text: Text = None,
    of_group: Annotated[
        str | None, typer.Option("--group", help="Only those of this group of failures.")
    ] = None,
    requests: Annotated[
        list[str] | None,
        typer.Option("--request", help="Identity of a request, such as 7-b2f0-15. Repeatable."),
    ] = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Start a run that makes failed requests of a run again, all of them unless limited."""
    body = {"filter": filters, "text": text, "group": of_group, "requests": requests}
    found = api().post(
        f"runs/{run}/requests/retry", {name: value for name, value in body.items() if value}
    )
    if format_in_use() is not Format.TABLE:
        one_shown(found)
        return
    one_shown(found, ("run", "requests"))
    list_shown([{"reason": why, "requests": n} for why, n in found["left_out"].items()], _REASONS)


_REASONS: Final = ("reason", "requests")
