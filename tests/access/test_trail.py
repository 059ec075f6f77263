"""The audit trail as people read it: by object, with what was before and is after."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from django.utils import translation

from apps.access.models import AuditRecord, User
from apps.access.queries import changed_fields, kind_label, kinds, short_changes
from apps.access.services import record
from apps.access.states import Role
from apps.jobs.models import Job, Run
from apps.projects.models import Project
from apps.runtime.models import DeadLetter
from apps.seeds.models import Frontier
from apps.sources.models import SourceState
from tests.access.factories import Api, enter, make_project, make_superuser, make_user, page
from tests.jobs.factories import NOW, make_job, make_run

pytestmark = pytest.mark.django_db


def written(before: dict[str, Any] | None, after: dict[str, Any] | None) -> AuditRecord:
    return record(actor=None, action="jobs.change_job", obj=make_job(), before=before, after=after)


def test_fields_have_their_words_and_both_values() -> None:
    entry = written({"speed": 5, "obey_robots": True}, {"speed": 10, "obey_robots": False})
    speed, robots = changed_fields(entry)
    assert (speed.name, speed.change, speed.before_text, speed.after_text) == (
        "speed",
        "changed",
        "5",
        "10",
    )
    assert speed.label == str(Job._meta.get_field("speed").verbose_name)
    assert (robots.before_text, robots.after_text) == ("yes", "no")
    with translation.override("zh-hans"):
        assert changed_fields(entry)[1].after_text != "no"


def test_nested_values_are_compared_one_by_one() -> None:
    entry = written({"limits": {"cpu": 1, "memory": 5}}, {"limits": {"cpu": 2, "memory": 5}})
    assert [(each.name, each.change) for each in changed_fields(entry)] == [
        ("limits.cpu", "changed"),
        ("limits.memory", "same"),
    ]
    deep = written(None, {"a": {"b": {"c": {"d": 1}}}})
    (only,) = changed_fields(deep)
    assert (only.name, only.change, only.after) == ("a.b.c", "added", {"d": 1})


def test_long_texts_are_compared_line_by_line() -> None:
    old = "\n".join(f"line {number}" for number in range(40))
    entry = written({"text": old}, {"text": old.replace("line 20", "<b>changed</b>")})
    (field,) = changed_fields(entry)
    shown = [(line.sign, line.text) for line in field.lines]
    assert ("-", "line 20") in shown
    assert ("+", "<b>changed</b>") in shown
    assert len(shown) < 10
    html = enter(make_superuser()).get(page(AuditRecord, "change", entry.pk)).content.decode()
    assert "&lt;b&gt;changed" in html
    assert "<b>changed" not in html


def test_a_list_tells_the_first_changes() -> None:
    entry = written({"a": 1, "b": 2, "c": 3, "d": 4}, {"a": 2, "b": 2, "c": 4, "d": 5})
    assert short_changes(entry) == ["a: 1 → 2", "b: 2 → 2", "c: 3 → 4", "1 more"]
    assert short_changes(written(None, {"name": "News"})) == ["name: News"]
    assert short_changes(written(None, None)) == []


def test_kinds_are_told_in_words_and_old_ones_by_name() -> None:
    assert kind_label("jobs.job") == "job"
    assert kind_label("gone.model") == "gone.model"
    assert kind_label("nonsense") == "nonsense"
    assert ("jobs.run", "run") in kinds()


@pytest.mark.slow("3 s")
@pytest.mark.parametrize("make", [make_project, make_job, make_run], ids=["project", "job", "run"])
def test_the_page_of_an_object_leads_to_its_history(make: Any) -> None:
    obj = make()
    record(actor=None, action="test.this", obj=obj)
    record(actor=None, action="test.other", obj=make())
    client = enter(make_superuser())
    where = f"/runs/{obj.pk}" if isinstance(obj, Run) else page(type(obj), "change", obj.pk)
    about = f"object_type={obj._meta.label_lower}&amp;object_id={obj.pk}"
    html = client.get(where).content.decode()
    link = about if isinstance(obj, Run) else page(type(obj), "history", obj.pk)
    assert link in html
    history = client.get(page(type(obj), "history", obj.pk), follow=True).content.decode()
    assert "test.this" in history
    assert "test.other" not in history
    assert f"Everything that was done to {obj._meta.verbose_name} {obj.pk}." in history


def test_machinery_has_a_history_too() -> None:
    letter = DeadLetter.objects.create(
        message_id="m", queue="q", body=b"", body_size=0, died_at=NOW
    )
    record(actor=None, action="runtime.drop_dead_letter", obj=letter)
    answer = enter(make_superuser()).get(page(DeadLetter, "history", letter.pk), follow=True)
    assert "runtime.drop_dead_letter" in answer.content.decode()


@pytest.mark.slow("2 s")
def test_history_is_not_offered_to_those_who_may_not_read_it() -> None:
    project: Project = make_project()
    job = make_job(project=project)
    viewer: User = make_user(roles={project: Role.VIEWER})
    html = enter(viewer).get(page(Job, "change", job.pk)).content.decode()
    assert page(Job, "history", job.pk) not in html
    admin = make_user(roles={project: Role.ADMIN})
    html = enter(admin).get(page(Job, "change", job.pk)).content.decode()
    assert page(Job, "history", job.pk) in html


def test_pages_of_what_is_no_row_lead_to_what_was_done_there() -> None:
    project, other = make_project(), make_project()
    record(actor=None, action="routing.offer_parked", obj=project, note="here")
    record(actor=None, action="seeds.wipe", obj=project, note="elsewhere")
    record(actor=None, action="routing.offer_parked", obj=other, note="of another")
    client = enter(make_superuser())
    html = client.get("/admin/routing/routerreport/", {"project": project.pk}).content.decode()
    (link,) = re.findall(r'href="([^"]+)" data-history>', html)
    told = client.get(unescape(link)).content.decode()
    assert "here" in told
    assert "elsewhere" not in told
    assert "of another" not in told


def test_pages_of_sources_and_frontiers_lead_to_their_history() -> None:
    project = make_project()
    state = SourceState.objects.create(project=project, name="press")
    frontier = Frontier.objects.create(project=project, name="news")
    client = enter(make_superuser())
    about = {"project": project.pk, "name": "press"}
    for address, obj in (
        (f"/admin/sources/sourcestate/source/?{urlencode(about)}", state),
        (f"/admin/seeds/frontier/{frontier.pk}/", frontier),
    ):
        html = client.get(address).content.decode()
        link = f"object_type={obj._meta.label_lower}&amp;object_id={obj.pk}"
        assert link in html, address
    viewer = enter(make_user(roles={project: Role.VIEWER}))
    assert "data-history" not in viewer.get(address).content.decode()


def test_ids_are_compared_whole() -> None:
    project = make_project()
    for number in ("7", "17"):
        entry = record(actor=None, action=f"test.n{number}", obj=project)
        AuditRecord.objects.bulk_create(
            [AuditRecord(action=f"x.{number}", object_type="jobs.run", object_id=number)]
        )
        assert entry.object_id == str(project.pk)
    client = enter(make_superuser())
    about = {"object_type": "jobs.run", "object_id": "7"}
    html = client.get(page(AuditRecord, "changelist"), about).content.decode()
    assert "x.7" in html
    assert "x.17" not in html


def test_rest_tells_the_same() -> None:
    written({"speed": 5}, {"speed": 10})
    api = Api(make_superuser())
    (row,) = api.get("audit?text=change_job").json()["results"]
    (change,) = row["changes"]
    assert change["name"] == "speed"
    assert (change["change"], change["before"], change["after"]) == ("changed", 5, 10)
    assert api.get("audit?text=nothing-like-this").json()["results"] == []
