"""Common options of all commands, the current login, and printing in the chosen format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from yardcli.client import Client
from yardcli.errors import usage
from yardcli.output import Column, Format, note, on_terminal, show_one, show_rows
from yardcli.profiles import chosen_login

_chosen: dict[str, Any] = {}


def _choose_format(value: Format | None) -> Format | None:
    # The option may precede or follow the command: the last one counts.
    if value is not None:
        _chosen["format"] = value
    return value


def _choose_profile(value: str | None) -> str | None:
    if value is not None:
        _chosen["profile"] = value
    return value


Output = Annotated[
    Format | None,
    typer.Option(
        "--output", "-o", help="How to print answers.", callback=_choose_format, show_default=False
    ),
]
Profile = Annotated[
    str | None, typer.Option("--profile", help="The login to use.", callback=_choose_profile)
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of rows.")]
Everything = Annotated[bool, typer.Option("--all", help="All rows.")]
ProjectOption = Annotated[
    str | None, typer.Option("--project", "-p", help="Slug, name or id of a project.")
]
DEFAULT_LIMIT = 50


def group(name: str, text: str) -> typer.Typer:
    """Return a group of commands."""
    return typer.Typer(name=name, help=text, no_args_is_help=True, rich_markup_mode=None)


def forget_choices() -> None:
    """Reset the options and close the connection; called before and after a command line."""
    client: Client | None = _chosen.pop("client", None)
    if client is not None:
        client.close()
    _chosen.clear()


def profile_in_use() -> str | None:
    chosen: str | None = _chosen.get("profile")
    return chosen


def format_in_use() -> Format:
    chosen: Format = _chosen.get("format", Format.TABLE)
    return chosen


def api() -> Client:
    """Return the client of the chosen login, one for each command. Raises ``CommandFailed``."""
    client: Client | None = _chosen.get("client")
    if client is None:
        tell = note if on_terminal() else None
        client = Client(chosen_login(os.environ, profile_in_use()), tell=tell)
        _chosen["client"] = client
    return client


def rows_shown(
    path: str, columns: Sequence[Column], *, limit: int, everything: bool, **query: Any
) -> None:
    rows = api().rows(path, None if everything else limit, **query)
    show_rows(rows, columns, format_in_use())


def list_shown(rows: Sequence[dict[str, Any]], columns: Sequence[Column]) -> None:
    show_rows(rows, columns, format_in_use())


def one_shown(row: dict[str, Any], names: Sequence[str] = ()) -> None:
    show_one(row, format_in_use(), names)


def pairs(texts: Sequence[str], *, option: str) -> dict[str, Any]:
    """Parse ``KEY=VALUE`` texts; values that are valid JSON are decoded, others are texts.

    Raises ``CommandFailed``.
    """
    import json

    values: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise usage(f"{option}: KEY=VALUE is needed, not {text!r}")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values


def content_of(path: str) -> str:
    """Return the text of a file, ``-`` for standard input. Raises ``CommandFailed``."""
    import sys
    from pathlib import Path

    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise usage(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise usage(f"{path}: it is not UTF-8, from byte {error.start} on") from error


def data_of(path: str) -> Any:
    """Return the data of a JSON or YAML file, ``-`` for standard input. Raises
    ``CommandFailed``.
    """
    import json

    text = content_of(path)
    try:
        return json.loads(text)
    except ValueError:
        pass
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise usage(f"{path}: neither JSON nor YAML: {reason}") from error
