"""Views of the rules editor: show a version, check a draft, save a draft as a new version."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any, Final

from django.core.exceptions import BadRequest, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.access.admin.base import person_of
from apps.access.errors import DomainError
from apps.configcenter.errors import SaveConflict
from apps.configcenter.models import MAX_NOTE, Configuration, ConfigVersion
from apps.configcenter.services import save_version
from apps.projects.admin.project_choice import ProjectChoice, number_in
from apps.projects.models import Project
from apps.routing.admin import rule_drafts, schema
from apps.routing.admin.rule_drafts import Data, DraftProblem, InvalidDraft
from apps.routing.engine.files.data import from_data, to_data
from apps.routing.engine.rules import Problem
from apps.routing.queries.tracks import KIND
from apps.routing.services.configuration import RoutingKind, without_places

MOST_SHOWN: Final = 100
MOST_CHOICES: Final = 50
_ENTRY: Final = re.compile(r"(inbound|outbound)\[(\d+)\]\.?(.*)", re.DOTALL)
_ROW: Final = re.compile(r"(selector|convert)\[(\d+)\]")
# Problems found by a class name the parameter in their text only.
_PARAMETER: Final = re.compile(r"\binit\.([A-Za-z0-9_]+)")


def page(
    request: HttpRequest, choice: ProjectChoice | None, context: dict[str, Any]
) -> HttpResponse:
    """Show the version ``?version=``, by default the newest."""
    if choice is None:
        return TemplateResponse(request, "admin/routing/rules.html", context)
    row = _configuration(choice.project)
    version = _version(row, request.GET.get("version", ""))
    data = _data(choice.project, version)
    if not choice.may_edit:
        data = RoutingKind().public(data)
    number = 0 if version is None else version.number
    active = None if row is None else row.active
    context |= {
        "row": row,
        "version": version,
        "active": active,
        "is_active": version is not None and row is not None and row.active_id == version.pk,
        "links": [] if version is None else _links(choice.project, version),
        "numbers": [] if row is None else _numbers(row),
        "form": {
            "state": rule_drafts.form_of(data),
            "schema": schema.as_json(),
            "version": number,
            "based_on": 0 if row is None else row.newest,
            "may_edit": choice.may_edit,
            "words": _words(),
        },
        "max_note": MAX_NOTE,
    }
    return TemplateResponse(request, "admin/routing/rules.html", context)


def check(request: HttpRequest, choice: ProjectChoice | None) -> HttpResponse:
    """Return the problems of a draft as JSON; nothing is saved."""
    project, sent = _sent(request, choice)
    read = _read(project, sent)
    return JsonResponse({"wrong": [asdict(problem) for problem in wrong_with(read)[:MOST_SHOWN]]})


def save(request: HttpRequest, choice: ProjectChoice | None) -> HttpResponse:
    """Save a draft as a new version.

    Answers 422 with the problems of the draft, and 409 if another version was saved since the draft
    was started.
    """
    project, sent = _sent(request, choice)
    based_on, note = sent.get("based_on"), sent.get("note", "")
    if not isinstance(based_on, int) or isinstance(based_on, bool) or not isinstance(note, str):
        raise BadRequest
    read = _read(project, sent)
    wrong = wrong_with(read)
    if any(not problem.warning for problem in wrong):
        return JsonResponse(
            {"wrong": [asdict(problem) for problem in wrong[:MOST_SHOWN]]}, status=422
        )
    rules, _problems = from_data(read.data)
    if rules is None:
        raise BadRequest
    try:
        saved = save_version(
            kind=KIND,
            project_id=project.pk,
            data=to_data(without_places(rules)),
            actor=person_of(request),
            now=timezone.now(),
            note=note.replace("\x00", ""),
            based_on=based_on,
        )
    except SaveConflict:
        return JsonResponse({"meanwhile": _meanwhile(project)}, status=409)
    except DomainError as error:
        return JsonResponse(
            {"wrong": [asdict(DraftProblem("rules", None, "", error.text))]}, status=422
        )
    number = saved.version.number
    address = reverse("admin:routing_rules", query={"project": project.pk, "version": number})
    return JsonResponse({"number": number, "created": saved.created, "address": address})


def wrong_with(read: rule_drafts.ParsedDraft) -> list[DraftProblem]:
    """Return the problems of a draft, each with its field: of its syntax, else of its rules."""
    if read.wrong:
        return read.wrong
    return [_at_field(problem) for problem in RoutingKind().check(read.data)]


def _at_field(problem: Problem) -> DraftProblem:
    match = _ENTRY.fullmatch(problem.place)
    if match is None:
        name = problem.place.partition("[")[0]
        return DraftProblem("rules", None, name, problem.text, warning=problem.warning)
    of, place, rest = match[1], int(match[2]), match[3]
    row = _ROW.match(rest)
    # The name of a parameter is in the place of the problem, or else in its text.
    named = _PARAMETER.match(rest) or (None if rest else _PARAMETER.search(problem.text))
    if row is not None:
        name = row[1]
    elif named is not None:
        name = named[0]
    else:
        name = re.split(r"[.\[]", rest, maxsplit=1)[0]
    number = int(row[2]) if row is not None else None
    return DraftProblem(of, place, name, problem.text, number, problem.offset, problem.warning)


def _sent(request: HttpRequest, choice: ProjectChoice | None) -> tuple[Project, dict[str, Any]]:
    if choice is None or not choice.may_edit:
        raise PermissionDenied
    try:
        sent = json.loads(request.body)
    except (ValueError, RecursionError):
        raise BadRequest from None
    if not isinstance(sent, dict):
        raise BadRequest
    return choice.project, sent


def _read(project: Project, sent: dict[str, Any]) -> rule_drafts.ParsedDraft:
    """Apply the draft to the version that it was started from."""
    number = sent.get("version")
    if not isinstance(number, int) or isinstance(number, bool):
        raise BadRequest
    version = _version(_configuration(project), str(number)) if number else None
    try:
        return rule_drafts.read_draft(_data(project, version), sent.get("draft"))
    except InvalidDraft:
        raise BadRequest from None


def _configuration(project: Project) -> Configuration | None:
    rows = Configuration.objects.filter(kind=KIND, project=project, newest__gte=1)
    return rows.select_related("active", "project").defer("active__content").first()


def _version(row: Configuration | None, asked: str) -> ConfigVersion | None:
    if row is None:
        return None
    number = number_in(asked) if asked else row.newest
    version = None if number is None else row.versions.filter(number=number).first()
    if version is None:
        raise Http404
    return version


def _data(project: Project, version: ConfigVersion | None) -> Data:
    return rule_drafts.new_data(project.slug) if version is None else version.data


def _numbers(row: Configuration) -> list[int]:
    return list(row.versions.order_by("-number").values_list("number", flat=True)[:MOST_CHOICES])


def _links(project: Project, version: ConfigVersion) -> list[tuple[str, str]]:
    """Return links to tools that try a version before its activation, as (URL, title)."""
    parameters = {"project": project.pk, "version": version.number}
    return [
        (reverse("routing-explain", query=parameters), _("Explain a task")),
        (reverse("routing-replay", query=parameters), _("Replay recent tasks")),
    ]


def _meanwhile(project: Project) -> dict[str, Any]:
    row = _configuration(project)
    newest = None if row is None else _version(row, "")
    if newest is None:
        return {}
    return {
        "number": newest.number,
        "author": newest.author_label,
        "note": newest.note,
        "address": reverse("admin:configcenter_configversion_change", args=[newest.pk]),
    }


def _words() -> dict[str, str]:
    """Return the translated texts of the page's script."""
    return {
        "add_selector": _("Add a condition"),
        "add_convert": _("Add a converter"),
        "class_of_convert": _("Class of the converter"),
        "condition": _("Condition"),
        "copy": _("copy"),
        "delete": _("Delete"),
        "disabled": _("disabled"),
        "down": _("Move down"),
        "drag": _("Drag to reorder"),
        "duplicate": _("Duplicate"),
        "edit": _("Edit"),
        "enabled": _("Enabled"),
        "failed": _("The server did not answer. Your draft is still here: try again."),
        "forbidden": _("You no longer have permission, or your session has expired."),
        "by_class": _("class default"),
        "true": _("yes"),
        "false": _("no"),
        "leave": _("There are changes that are not saved."),
        "meanwhile": _("%(author)s saved v%(number)s in the meantime. Your draft is still here."),
        "see_theirs": _("Changes in v%(number)s"),
        "save_mine": _("Save my draft after v%(number)s anyway"),
        "moved": _("%(name)s is now at position %(place)s."),
        "no_class": _("Choose a class first."),
        "no_conditions": _("no conditions: failback only"),
        "all_items": _("every task"),
        "none": _("none"),
        "parameters": _("parameters: %(names)s"),
        "character": _("character %(number)s"),
        "problem": _("One problem, shown at its field."),
        "problems": _("%(count)s problems, each shown at its field."),
        "warning": _("One warning; the rules can be saved anyway."),
        "warnings": _("%(count)s warnings; the rules can be saved anyway."),
        "removed": _("%(name)s was deleted from the draft."),
        "undo": _("Undo"),
        "unnamed": _("unnamed"),
        "up": _("Move up"),
        "changed": _("not saved"),
        "close": _("Close"),
        "fine": _("No problems."),
    }
