"""``crawlyard items``: the data of runs and datasets."""

from __future__ import annotations

import json
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from yardcli.client import Client
from yardcli.context import (
    Limit,
    Output,
    Profile,
    ProjectOption,
    api,
    format_in_use,
    group,
    list_shown,
    one_shown,
)
from yardcli.downloads import Resumed, download, fetch_pages
from yardcli.errors import usage
from yardcli.lookup import find_dataset
from yardcli.output import Format, note, say
from yardcli.watch import POLL_SECONDS

commands = group("items", "Items: the data that runs find.")
# Most items of one page.
_PAGE: Final = 1000


class ItemFormat(StrEnum):
    """Format of a download."""

    JSONL = "jsonl"
    JSON = "json"
    CSV = "csv"
    XLSX = "xlsx"
    PARQUET = "parquet"


Source = Annotated[
    str, typer.Argument(metavar="RUN|DATASET", help="Number of a run; NAME or PROJECT/NAME.")
]
Run = Annotated[int, typer.Argument(metavar="RUN", min=1)]
Fields = Annotated[
    str | None, typer.Option("--fields", help="Names separated by commas; all without it.")
]
Filters = Annotated[
    list[str] | None,
    typer.Option("--filter", help="FIELD:OP:VALUE, such as price:at_least:10. Repeatable."),
]
Text = Annotated[str | None, typer.Option("--text", help="Only items that contain this text.")]


@commands.command()
def get(
    source: Source,
    project: ProjectOption = None,
    form: Annotated[ItemFormat, typer.Option("--format", "-f")] = ItemFormat.JSONL,
    fields: Fields = None,
    filters: Filters = None,
    text: Text = None,
    sort: Annotated[
        str | None, typer.Option("--sort", help="A field; -FIELD for descending order.")
    ] = None,
    latest: Annotated[
        bool, typer.Option("--latest", help="Only the last item of each key.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Maximum number of items; jsonl only.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Write to this file.")] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Append what FILE does not have yet; jsonl with --to only."),
    ] = False,
    profile: Profile = None,
) -> None:
    """Download items, all of them unless --limit, --filter or --text is given."""
    paged = limit is not None or resume
    if paged and form is not ItemFormat.JSONL:
        raise usage("--limit and --resume need the format jsonl")
    if resume and (to is None or sort or latest):
        raise usage("--resume needs --to, and goes neither with --sort nor with --latest")
    if to is None and form in (ItemFormat.XLSX, ItemFormat.PARQUET) and sys.stdout.isatty():
        raise usage(f"{form} is binary: write it to a file with --to")
    client = api()
    path = _path(client, source, project)
    query: dict[str, Any] = {
        "fields": fields,
        "filter": filters,
        "text": text,
        "sort": sort,
        "latest": latest or None,
    }
    if paged:
        resumed = Resumed(to, path, query) if resume and to is not None else None
        count = fetch_pages(client, path, query, limit=limit, to=to, resumed=resumed)
    else:
        count = download(client, path, {**query, "format": form.value, "download": "true"}, to)
    if to is not None:
        note(f"{to}: {count}")


@commands.command()
def tail(
    source: Source,
    project: ProjectOption = None,
    number: Annotated[int, typer.Option("--number", "-n", min=1, max=_PAGE)] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new items until the run has ended.")
    ] = False,
    profile: Profile = None,
) -> None:
    """Show the items that were stored last, as JSON lines."""
    client = api()
    path = _path(client, source, project)
    page = client.get(path, newest=True, limit=number)
    cursor = page["last"]
    _lines_shown(page["results"])
    while follow:
        active = not source.isdigit() or client.get(f"runs/{source}")["active"]
        page = client.get(path, cursor=cursor, limit=_PAGE)
        cursor = page["last"] or cursor
        _lines_shown(page["results"])
        if page["results"]:
            continue
        if not active and not client.get(f"runs/{source}/items/accounting")["in_flight"]:
            return
        time.sleep(POLL_SECONDS)


@commands.command()
def stats(
    run: Run,
    field: Annotated[
        str | None, typer.Option("--field", help="Values of this field: distinct, most frequent.")
    ] = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Show the outcomes of a run's items, and each field with fill rate, types and limits."""
    client = api()
    if field is not None:
        statistics = client.get(f"runs/{run}/items/values", field=field)
        if format_in_use() is not Format.TABLE:
            one_shown(statistics)
            return
        one_shown(statistics, ("count", "distinct", "low", "high", "mean"))
        list_shown(
            [{"value": value, "items": items} for value, items in statistics["top"]], _VALUES
        )
        return
    accounting = client.get(f"runs/{run}/items/accounting")
    fields = client.get(f"runs/{run}/items/fields")
    if format_in_use() is not Format.TABLE:
        one_shown({"accounting": accounting, "fields": fields})
        return
    one_shown(accounting, _ACCOUNTS)
    list_shown([{"reason": why, "items": n} for why, n in accounting["reasons"].items()], _REASONS)
    for row in fields:
        row["filled"] = f"{row['share']:.1%}"
        row["types"] = ", ".join(row["types"])
    list_shown(fields, ("field", "filled", "types", "low", "high"))


@commands.command()
def compare(
    run: Run,
    other: Annotated[
        int | None, typer.Option("--with", min=1, help="Earlier run; default: the previous one.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", help="Which items: added, removed, changed or equal.")
    ] = "changed",
    limit: Limit = 50,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Compare a run's items by key with those of an earlier run."""
    query = {"with": other, "kind": kind, "limit": min(limit, _PAGE)}
    comparison = api().get(f"runs/{run}/compare", **query)
    if format_in_use() is not Format.TABLE:
        one_shown(comparison)
        return
    one_shown(comparison, ("old", "new", *_KINDS))
    for row in comparison["results"]:
        row["key"] = ", ".join(row["key"])
        if kind == "changed":
            row["was"], row["is"] = (
                {name: (row[side] or {}).get(name) for name in row["fields"]}
                for side in ("old", "new")
            )
        else:
            row["item"] = row["new"] or row["old"]
    list_shown(
        comparison["results"], ("key", "was", "is") if kind == "changed" else ("key", "item")
    )


_VALUES: Final = ("value", "items")
_REASONS: Final = ("reason", "items")
_ACCOUNTS: Final = ("yielded", "stored", "rejected", "dropped", "in_flight", "flagged", "deleted")
_KINDS: Final = ("added", "removed", "changed", "equal", "without_key", "duplicates")


def _path(client: Client, source: str, project: str | None) -> str:
    if source.isascii() and source.isdigit() and project is None:
        return f"runs/{source}/items"
    return f"datasets/{find_dataset(client, source, project)['id']}/items"


def _lines_shown(items: list[dict[str, Any]]) -> None:
    for item in items:
        say(json.dumps(item["item"], ensure_ascii=False))
    sys.stdout.flush()
