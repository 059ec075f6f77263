"""``crawlyard api``: any REST call, with the login, retries and errors of other commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from yardcli.context import Output, Profile, api, data_of, format_in_use
from yardcli.errors import usage
from yardcli.output import Format, say, show_one, show_rows

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def add_to(app: typer.Typer) -> None:
    """Add the command, which belongs to no group."""
    app.command(name="api")(call)


def call(
    method: Annotated[str, typer.Argument(help="GET, POST, PUT, PATCH or DELETE.")],
    path: Annotated[str, typer.Argument(help="Below /api/v1/, such as jobs/7/clone.")],
    query: Annotated[list[str] | None, typer.Option("--query", "-q", help="KEY=VALUE.")] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="JSON or YAML file to send; - is stdin.")
    ] = None,
    if_match: Annotated[
        str | None,
        typer.Option("--if-match", help="ETag; the call is refused if it is not current."),
    ] = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Call a REST address by hand; prints JSON unless -o says otherwise."""
    if method.upper() not in _METHODS:
        raise usage(f"METHOD: one of {', '.join(_METHODS)}")
    parameters: dict[str, list[str]] = {}
    for text in query or []:
        name, separator, value = text.partition("=")
        if not separator:
            raise usage(f"--query: KEY=VALUE is needed, not {text!r}")
        parameters.setdefault(name, []).append(value)
    body: Any = None if data is None else data_of(data)
    headers = {} if if_match is None else {"If-Match": if_match}
    answer = api().call(
        method.upper(),
        path.removeprefix("/api/v1/"),
        body=body,
        query=parameters,
        headers=headers,
        repeat=method.upper() != "PATCH",
    )
    _show(answer, format_in_use())


def _show(answer: Any, form: Format) -> None:
    form = Format.JSON if form is Format.TABLE else form
    if answer is None:
        return
    if isinstance(answer, str):
        say(answer)
    elif isinstance(answer, list):
        show_rows(answer, [], form)
    else:
        show_one(answer, form)
