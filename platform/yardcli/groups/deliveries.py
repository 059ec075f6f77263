"""``crawlyard deliveries``: copies of a dataset's items in other systems."""

from __future__ import annotations

import json
import os
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

commands = group("deliveries", "Deliveries: items of a dataset, copied to another system.")
Dataset = Annotated[int, typer.Argument(metavar="DATASET", min=1, help="ID of the dataset.")]
Delivery = Annotated[int, typer.Argument(metavar="DELIVERY", min=1, help="ID of the delivery.")]
_SHOWN = ("id", "name", "kind", "state", "error", "accounting", "lag_seconds")


# Variable of the environment with the secrets of a delivery, which no list of processes shows.
CREDENTIALS = "CRAWLYARD_DELIVERY_CREDENTIALS"


@commands.command("list")
def list_(
    dataset: Dataset,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List the deliveries of a dataset."""
    rows_shown(f"datasets/{dataset}/deliveries", _SHOWN, limit=limit, everything=everything)


@commands.command()
def add(
    dataset: Dataset,
    name: Annotated[str, typer.Argument(help="Name of the delivery.")],
    kind: Annotated[str, typer.Option("--kind", help="For example folder, s3 or postgresql.")],
    url: Annotated[str, typer.Option("--url", help="Address of the target.")] = "",
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="NAME=VALUE, repeatable.")
    ] = None,
    at_end: Annotated[
        bool, typer.Option("--at-end", help="Deliver when a run has ended, not continuously.")
    ] = False,
    from_now: Annotated[
        bool, typer.Option("--from-now", help="Skip the items that are stored already.")
    ] = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Add a delivery. Credentials: a JSON object in CRAWLYARD_DELIVERY_CREDENTIALS."""
    body: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "url": url,
        "mode": "at_end" if at_end else "continuous",
        "from_now": from_now,
        "options": dict(_pair(text) for text in option or ()),
        "credentials": _credentials(),
    }
    one_shown(api().post(f"datasets/{dataset}/deliveries", body), _SHOWN)


@commands.command()
def pause(
    dataset: Dataset, delivery: Delivery, output: Output = None, profile: Profile = None
) -> None:
    """Pause a delivery: items wait."""
    one_shown(api().post(f"datasets/{dataset}/deliveries/{delivery}/pause"), _SHOWN)


@commands.command()
def resume(
    dataset: Dataset, delivery: Delivery, output: Output = None, profile: Profile = None
) -> None:
    """Resume a delivery; a failing one tries at once."""
    one_shown(api().post(f"datasets/{dataset}/deliveries/{delivery}/resume"), _SHOWN)


@commands.command()
def again(
    dataset: Dataset,
    delivery: Delivery,
    run: Annotated[int | None, typer.Option("--run", min=1, help="From this run on.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="From this time on.")] = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Deliver again from a run, from a time, or from the beginning."""
    body = {name: value for name, value in (("run", run), ("since", since)) if value is not None}
    one_shown(api().post(f"datasets/{dataset}/deliveries/{delivery}/deliver-again", body), _SHOWN)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--option")
    return name, value


def _credentials() -> dict[str, Any]:
    """Return the credentials; an option would stand in lists of processes."""
    text = os.environ.get(CREDENTIALS, "{}")
    try:
        credentials = json.loads(text)
    except ValueError:
        credentials = None
    if not isinstance(credentials, dict):
        raise typer.BadParameter(f"{CREDENTIALS} is not a JSON object")
    return credentials
