"""``crawlyard requests``: the store of requests; those of runs are in ``requests``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from yardcli.context import (
    DEFAULT_LIMIT,
    Everything,
    Limit,
    Output,
    Profile,
    ProjectOption,
    api,
    content_of,
    group,
    list_shown,
    one_shown,
    rows_shown,
)
from yardcli.errors import usage
from yardcli.lookup import find_project, project_id

commands = group("requests", "Stored requests, and requests of runs: outcomes, failures, retries.")
_BATCH = 1000


@commands.command("list")
def list_(
    project: ProjectOption = None,
    biz: Annotated[str | None, typer.Option("--biz", "-b")] = None,
    flag: Annotated[int | None, typer.Option("--flag")] = None,
    since: Annotated[str | None, typer.Option("--since")] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List requests, newest first."""
    of = project_id(api(), project)
    rows_shown(
        "requests",
        ("id", "project", "biz", "flag", "state", "tries", "stored_at", "finished_at"),
        limit=limit,
        everything=everything,
        project=of,
        biz=biz,
        flag=flag,
        since=since,
    )


@commands.command()
def add(
    project: Annotated[str, typer.Argument(metavar="PROJECT")],
    biz: Annotated[str, typer.Argument(metavar="BIZ")],
    urls: Annotated[list[str] | None, typer.Argument(metavar="[URL]...")] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="A URL or JSON object on each line; - is stdin."),
    ] = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Store requests to be fetched."""
    requests: list[Any] = [*(urls or []), *(_lines_of(file) if file else [])]
    if not requests:
        raise usage("name an address, or a --file of them")
    client = api()
    of = find_project(client, project)["id"]
    answers = [
        client.post("requests", {"project": of, "biz": biz, "requests": requests[at : at + _BATCH]})
        for at in range(0, len(requests), _BATCH)
    ]
    ids = [request_id for answer in answers for request_id in answer["ids"]]
    one_shown({**answers[0], "count": len(ids), "ids": ids})


@commands.command()
def trace(
    request: Annotated[int, typer.Argument(metavar="ID", min=1)],
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Show the state and history of a request."""
    one_shown(api().get(f"requests/{request}"))


@commands.command()
def extract(
    project: Annotated[str, typer.Argument(metavar="PROJECT")],
    biz: Annotated[str, typer.Argument(metavar="BIZ")],
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...")] = None,
    flag: Annotated[int | None, typer.Option("--flag", help="Final flag; any by default.")] = None,
    since: Annotated[str | None, typer.Option("--since")] = None,
    until: Annotated[str | None, typer.Option("--until")] = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Extract records from kept pages again, by the rules of now; nothing is downloaded."""
    client = api()
    chosen = {"ids": ids or None, "flag": flag, "since": since, "until": until}
    body = {name: value for name, value in chosen.items() if value is not None}
    of = find_project(client, project)["id"]
    one_shown(client.post(f"bizzes/{of}.{biz}/extract-again", body))


@commands.command()
def extractions(
    project: ProjectOption = None,
    biz: Annotated[str | None, typer.Option("--biz", "-b")] = None,
    limit: Limit = DEFAULT_LIMIT,
    everything: Everything = False,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """List re-extractions with their progress, newest first."""
    rows_shown(
        "reextractions",
        ("id", "project", "biz", "state", "seen", "done", "failed", "not_kept", "records"),
        limit=limit,
        everything=everything,
        project=project_id(api(), project),
        biz=biz,
    )


@commands.command()
def stats(
    run: Annotated[int | None, typer.Argument(metavar="[RUN]", min=1)] = None,
    project: ProjectOption = None,
    output: Output = None,
    profile: Profile = None,
) -> None:
    """Show the accounting of a run's requests; without RUN, that of stored requests by biz."""
    client = api()
    if run is not None:
        one_shown(client.get(f"runs/{run}/requests/accounting"))
        return
    of = project_id(client, project)
    rows = [
        {**row, **(row["books"] or {})}
        for row in client.rows("bizzes", None)
        if of is None or row["project"] == of
    ]
    counted = list(dict.fromkeys(name for row in rows for name in row["books"] or {}))
    list_shown(rows, ["id", "project", "name", "enabled", "queue", *counted])


def _lines_of(path: str) -> list[Any]:
    import json

    requests: list[Any] = []
    for number, line in enumerate(content_of(path).splitlines(), 1):
        text = line.strip()
        if not text:
            continue
        try:
            requests.append(json.loads(text) if text.startswith("{") else text)
        except ValueError as error:
            raise usage(f"{path}:{number}: {error}") from error
    return requests
