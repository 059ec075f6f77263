"""Services that save, activate and revert versions: results, errors, audit records."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import ProtectedError

from apps.access.models import AuditRecord
from apps.configcenter import errors, queries
from apps.configcenter.engine import kinds
from apps.configcenter.models import Activation, Configuration, ConfigVersion, KindSerial
from apps.configcenter.services import (
    activate,
    deactivate,
    kind_named,
    read_text,
    revert,
    save_version,
)
from apps.projects.models import Project
from apps.projects.services import delete_project, purge_projects
from tests.access.factories import make_project, make_user
from tests.configcenter.factories import KIND, NOW, SampleKind, fresh, make_process, save

pytestmark = pytest.mark.django_db


def actions() -> list[str]:
    rows = AuditRecord.objects.filter(action__startswith="configcenter").order_by("id")
    return [row.action.removeprefix("configcenter.") for row in rows]


# --- saving -------------------------------------------------------------------------------------


def test_versions_are_numbered_from_one_by_kind_and_project() -> None:
    one, two = make_project(), make_project()
    assert [save(one, n).number for n in (5, 6, 7)] == [1, 2, 3]
    assert save(two, 5).number == 1
    newest = fresh(save(one, 8))
    assert (newest.newest, newest.active) == (4, None)


def test_a_version_keeps_who_what_and_why() -> None:
    user, project = make_user(username="ann"), make_project()
    data = {"zz": 1, "limit": 3, "名": ["值", 1.5, None, True]}
    version = save(project, 0, data=data, actor=user, note="because")
    kept = ConfigVersion.objects.get(pk=version.pk)
    assert kept.data == data
    assert list(kept.data) == ["zz", "limit", "名"]
    assert (kept.author, kept.author_label, kept.note) == (user, "ann", "because")
    assert (kept.summary, kept.created_at) == ("limit 3", NOW)
    entry = AuditRecord.objects.get(action="configcenter.save_version")
    assert (entry.actor, entry.project_id, entry.note) == (user, project.pk, "because")
    assert entry.after is not None
    assert entry.after["number"] == 1
    assert len(entry.after["values_sha256"]) == 64
    user.delete()
    kept = ConfigVersion.objects.get(pk=version.pk)
    assert (kept.author, kept.author_label) == (None, "ann")


def test_equal_data_makes_no_new_version() -> None:
    project = make_project()
    first = save(project, 0, data={"a": 1, "limit": 2})
    again = save_version(
        kind=KIND, project_id=project.pk, data={"limit": 2, "a": 1}, actor=None, now=NOW, based_on=0
    )
    assert (again.version, again.created) == (first, False)
    assert actions() == ["save_version"]
    # Only the newest is compared: returning to older values is a new version.
    save(project, 3)
    assert save(project, 0, data={"a": 1, "limit": 2}).number == 3


def test_a_save_on_an_older_state_is_refused() -> None:
    project = make_project()
    save(project, 1, based_on=0)
    save(project, 2, based_on=1)
    with pytest.raises(errors.SaveConflict) as refused:
        save(project, 3, based_on=1)
    assert refused.value.status == 409
    assert refused.value.fields == {"based_on": ["2"]}
    assert save(project, 3, based_on=2).number == 3
    assert save(project, 4).number == 4


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"limit": -1}, "limit: -1 is less than nothing"),
        ({"limit": "x"}, "limit: a whole number is needed"),
        ([], "a configuration is a mapping of names to values"),
        ({"limit": 1, "x": float("nan")}, "x: nan is no number that JSON knows"),
    ],
)
def test_data_with_problems_is_not_saved(data: Any, told: str) -> None:
    with pytest.raises(errors.BadConfig) as refused:
        save(make_project(), 0, data=data)
    assert refused.value.status == 422
    assert refused.value.fields == {"data": [told]}
    assert not Configuration.objects.exists()


def test_warnings_are_told_and_forbid_nothing() -> None:
    saved = save_version(
        kind=KIND, project_id=make_project().pk, data={"limit": 0}, actor=None, now=NOW
    )
    assert [str(each) for each in saved.warnings] == ["limit: nothing will go through"]
    activate(version=saved.version, actor=None, now=NOW)


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(errors.UnknownKind) as refused:
        save(make_project(), 0, kind="nothing")
    assert "kind" in refused.value.fields
    with pytest.raises(errors.UnknownKind):
        kind_named("nothing")
    with pytest.raises(errors.BadConfig) as unreadable:
        read_text(kind=KIND, text="\ud800")
    assert list(unreadable.value.fields) == ["text"]


# --- immutability --------------------------------------------------------------------


def test_history_cannot_be_changed() -> None:
    project = make_project()
    version = save(project, 1)
    activation = activate(version=version, actor=None, now=NOW)
    for row in (version, activation):
        row.note = "forged"
        with pytest.raises(errors.ImmutableHistory):
            row.save()
        with pytest.raises(errors.ImmutableHistory):
            row.delete()
    for model in (ConfigVersion, Activation):
        rows: Any = model.objects.all()
        with pytest.raises(errors.ImmutableHistory):
            rows.update(note="forged")
        with pytest.raises(errors.ImmutableHistory):
            rows.delete()
        with pytest.raises(errors.ImmutableHistory):
            rows.bulk_update([rows[0]], ["note"])
        assert not rows.filter(note="forged").exists()
    with pytest.raises(ProtectedError):
        project.delete()
    # A project can be soft-deleted, but not purged.
    delete_project(actor=None, project=project, now=NOW)
    assert purge_projects(now=NOW + timedelta(days=31)) == 0
    assert Project.all_objects.filter(pk=project.pk).exists()


def test_a_copy_of_the_data_cannot_change_it() -> None:
    version = save(make_project(), 1)
    version.data["limit"] = 9
    assert version.data == {"limit": 1}


# --- activating ---------------------------------------------------------------------------------


def test_nothing_is_active_before_it_is_activated() -> None:
    project, user = make_project(), make_user(username="bob")
    one, two = save(project, 1), save(project, 2)
    assert fresh(one).active is None
    activate(version=one, actor=user, now=NOW, note="go")
    activation = activate(version=two, actor=user, now=NOW)
    assert fresh(one).active == two
    assert (activation.version, activation.previous) == (two, one)
    history = Activation.objects.values_list("version__number", "previous__number", "actor_label")
    assert list(history) == [(2, 1, "bob"), (1, None, "bob")]
    entry = AuditRecord.objects.filter(action="configcenter.activate").order_by("id")[0]
    assert (entry.before, entry.after, entry.note) == ({"active": None}, {"active": 1}, "go")
    assert entry.project_id == project.pk


def test_every_activation_raises_the_serial_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(SampleKind):
        name = "other"

    monkeypatch.setitem(kinds._kinds, "other", Other())
    project = make_project()
    version = save(project, 1)
    assert not KindSerial.objects.exists()
    activate(version=version, actor=None, now=NOW)
    activate(version=save(project, 2), actor=None, now=NOW)
    activate(version=save(project, 1, kind="other"), actor=None, now=NOW)
    deactivate(configuration=version.configuration, actor=None, now=NOW)
    serials = dict(KindSerial.objects.values_list("kind", "serial"))
    assert serials == {KIND: 3, "other": 1}


def test_an_activation_is_guarded() -> None:
    project = make_project()
    one, two = save(project, 1), save(project, 2)
    with pytest.raises(errors.ActivationConflict):
        activate(version=one, actor=None, now=NOW, instead_of=2)
    activate(version=one, actor=None, now=NOW, instead_of=0)
    with pytest.raises(errors.AlreadyActive):
        activate(version=one, actor=None, now=NOW)
    with pytest.raises(errors.ActivationConflict) as refused:
        activate(version=two, actor=None, now=NOW, instead_of=0)
    assert refused.value.fields == {"instead_of": ["1"]}
    assert fresh(one).active == one
    assert Activation.objects.count() == KindSerial.objects.get().serial == 1


def test_what_a_kind_refuses_by_now_is_not_activated(monkeypatch: pytest.MonkeyPatch) -> None:
    version = save(make_project(), 5)
    stricter = [kinds.DataProblem("limit", "new_rule", "5 is too much now")]
    monkeypatch.setattr(SampleKind, "check", lambda self, data: stricter)
    with pytest.raises(errors.BadConfig, match="not valid"):
        activate(version=version, actor=None, now=NOW)
    assert fresh(version).active is None


# --- revert ---------------------------------------------------------------------------------


def test_going_back_is_one_call_and_can_be_undone() -> None:
    project = make_project()
    one, two, three = (save(project, n) for n in (1, 2, 3))
    configuration = fresh(one)
    with pytest.raises(errors.NothingToRevert):
        revert(configuration=configuration, actor=None, now=NOW)
    activate(version=one, actor=None, now=NOW)
    with pytest.raises(errors.NothingToRevert):
        revert(configuration=configuration, actor=None, now=NOW)
    activate(version=three, actor=None, now=NOW)
    assert revert(configuration=configuration, actor=None, now=NOW).version == one
    assert revert(configuration=configuration, actor=None, now=NOW).version == three
    with pytest.raises(errors.NeverActive):
        revert(configuration=configuration, actor=None, now=NOW, to=two.number)
    with pytest.raises(errors.AlreadyActive):
        revert(configuration=configuration, actor=None, now=NOW, to=three.number)
    assert revert(configuration=configuration, actor=None, now=NOW, to=1).version == one
    assert actions()[3:] == ["activate", "activate", "revert", "revert", "revert"]


def test_after_a_deactivation_one_goes_back_to_what_was_active() -> None:
    version = save(make_project(), 1)
    with pytest.raises(errors.NotActive):
        deactivate(configuration=fresh(version), actor=None, now=NOW)
    activate(version=version, actor=None, now=NOW)
    deactivate(configuration=fresh(version), actor=None, now=NOW, instead_of=1)
    assert fresh(version).active is None
    revert(configuration=fresh(version), actor=None, now=NOW)
    assert fresh(version).active == version


# --- roll-out -----------------------------------------------------------------------------


def test_nobody_follows_what_nobody_follows() -> None:
    make_process("idle")
    version = save(make_project(), 1)
    rollout = queries.rollouts_of([fresh(version)])[version.configuration_id]
    assert (rollout.of, rollout.on, rollout.complete) == (0, 0, True)
