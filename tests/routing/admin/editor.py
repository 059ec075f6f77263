"""Client of the rules editor that sends drafts as the page's script does."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from apps.configcenter.models import ConfigVersion
from apps.projects.models import Project
from tests.routing.admin.pages import RULES, address, form_of, html_of, person, unchanged


class EditorClient:
    """Client with the page open."""

    def __init__(self, client: Client, project: Project, **query: Any) -> None:
        self.client = client
        self.project = project
        self.form = form_of(html_of(client, address(RULES, project, **query)))
        self.draft = unchanged(self.form)
        self.based_on = self.form["based_on"]

    def type(self, of: str, place: int, **fields: Any) -> None:
        """Change fields of an entry; a dot in a name is written as two underscores."""
        named = {name.replace("__", "."): value for name, value in fields.items()}
        self.draft[of][place]["set"].update(named)

    def send(self, name: str, **more: Any) -> Any:
        body = {"version": self.form["version"], "draft": self.draft} | more
        where = address(name, self.project)
        return self.client.post(where, json.dumps(body), content_type="application/json")

    def wrong(self) -> list[dict[str, Any]]:
        """Return the problems that the page shows for the draft."""
        answer = self.send("routing_rules_check")
        assert answer.status_code == 200, answer.content
        found: list[dict[str, Any]] = answer.json()["wrong"]
        return found

    def errors(self) -> list[dict[str, Any]]:
        """Return the problems without warnings."""
        return [each for each in self.wrong() if not each["warning"]]

    def save(self, note: str = "") -> Any:
        return self.send("routing_rules_save", based_on=self.based_on, note=note)

    def saved(self, note: str = "") -> dict[str, Any]:
        """Return the data of the version that was saved."""
        answer = self.save(note)
        assert answer.status_code == 200, answer.content
        row = ConfigVersion.objects.get(
            configuration__project=self.project, number=answer.json()["number"]
        )
        assert isinstance(row.data, dict)
        return row.data


def editor(project: Project, **query: Any) -> EditorClient:
    return EditorClient(person(project), project, **query)
