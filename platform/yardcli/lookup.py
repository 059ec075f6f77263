"""Lookup of objects by a name, ``project/name``, or the row's id."""

from __future__ import annotations

from typing import Any

from yardcli.client import Client
from yardcli.errors import CommandFailed, Exits

# Limit of listed candidates when a name is ambiguous; more are only counted.
_MOST_TOLD = 10


def project_id(api: Client, text: str | None) -> int | None:
    """Return the id of a project by slug, name or id; None for None."""
    return None if text is None else int(find_project(api, text)["id"])


def find_project(api: Client, text: str) -> dict[str, Any]:
    """Return a project by slug, name or id. Raises ``CommandFailed``."""
    if _is_id(text):
        found: dict[str, Any] = api.get(f"projects/{text}")
        return found
    # The filter "" would match all projects.
    by_slug = [row for row in api.rows("projects", 2, slug=text) if row["slug"] == text]
    if by_slug:
        return by_slug[0]
    return _only("project", text, _called(api, "projects", "name", text, None))


def find_job(api: Client, text: str, project: str | None = None) -> dict[str, Any]:
    return _find(api, "job", "jobs", "name", text, project)


def find_dataset(api: Client, text: str, project: str | None = None) -> dict[str, Any]:
    return _find(api, "dataset", "datasets", "name", text, project)


def find_frontier(api: Client, text: str, project: str | None = None) -> dict[str, Any]:
    return _find(api, "frontier", "frontiers", "name", text, project)


def find_agent(api: Client, text: str) -> dict[str, Any]:
    """Return an agent by its name, its agent id, or the row's id."""
    if _is_id(text):
        found: dict[str, Any] = api.get(f"agents/{text}")
        return found
    rows = list(api.rows("agents", None))
    # An agent's name may be empty.
    named = [row for row in rows if text and text in (row["agent_id"], row["name"])]
    return _only("agent", text, named)


def find_configuration(api: Client, kind: str, project: str | None) -> dict[str, Any]:
    """Return the configuration of a kind, for a project or the platform."""
    query = {"platform": "true"} if project is None else {"project": project_id(api, project)}
    rows = list(api.rows("config", 2, kind=kind, **query))
    if not rows:
        owner = "the platform" if project is None else project
        raise CommandFailed(Exits.NOT_FOUND, f"nothing of kind {kind} is configured for {owner}")
    return rows[0]


def find_version(api: Client, configuration: dict[str, Any], number: int) -> dict[str, Any]:
    """Return a version of a configuration by its number."""
    owner = configuration["project"]
    query = {"platform": "true"} if owner is None else {"project": owner}
    rows = list(api.rows("config/versions", 2, kind=configuration["kind"], number=number, **query))
    if not rows:
        raise CommandFailed(Exits.NOT_FOUND, f"there is no version {number}")
    return rows[0]


def _find(
    api: Client, kind: str, path: str, field: str, text: str, project: str | None
) -> dict[str, Any]:
    if _is_id(text):
        row: dict[str, Any] = api.get(f"{path}/{text}")
        return row
    holder, separator, name = text.rpartition("/")
    if separator and project is None:
        try:
            rows = _called(api, path, field, name, project_id(api, holder))
        except CommandFailed as error:
            if error.exit_code is not Exits.NOT_FOUND:
                raise
            rows = []
        if rows:
            return _only(kind, text, rows)
    return _only(kind, text, _called(api, path, field, text, project_id(api, project)))


def _called(
    api: Client, path: str, field: str, name: str, project: int | None
) -> list[dict[str, Any]]:
    rows = api.rows(path, None, name=name, project=project)
    # Some filters also match a part of the name.
    return [row for row in rows if row[field] == name]


def _only(kind: str, text: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    if not rows:
        raise CommandFailed(Exits.NOT_FOUND, f"there is no {kind} {text}")
    if len(rows) > 1:
        names = ", ".join(_row_name(row) for row in rows[:_MOST_TOLD])
        text = f"there are several of {kind} {text}; say the id: {names}"
        raise CommandFailed(Exits.USAGE, text)
    return rows[0]


def _row_name(row: dict[str, Any]) -> str:
    project = row.get("project")
    return f"{row['id']}" if project is None else f"{row['id']} (project {project})"


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit()
