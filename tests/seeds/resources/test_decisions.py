"""What people decide about pools and resources, and what is recorded of it."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from apps.access.models import AuditRecord, User
from apps.seeds.engine.resource_files import FileFormat, opened
from apps.seeds.errors import BadResource, NotInThatState, UnreadableResources
from apps.seeds.models import Resource, ResourcePool
from apps.seeds.services import pools
from apps.seeds.services.resource_files import export_resources, import_resources
from apps.seeds.services.resources import NoneFree, give_back, lease
from apps.seeds.states import ResourceState
from tests.access.factories import make_user
from tests.seeds.resources.factories import PASSWORD, after, make_pool, make_resource, take
from yardkit.protocol import ResourceOutcome

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
State = ResourceState


@pytest.fixture
def person() -> User:
    return make_user()


def trail() -> list[str]:
    return list(AuditRecord.objects.order_by("pk").values_list("action", flat=True))


@pytest.mark.covers("S3.21")
def test_a_ban_ends_a_lease_and_an_unban_frees_at_once(person: User) -> None:
    pool = make_pool()
    resource = make_resource(pool, failures_in_a_row=3, score=0.4)
    got = take(pool, NOW)
    pools.ban(resource=resource, actor=person, now=NOW, reason=" blocked ")
    assert (resource.state, resource.leased_by, resource.reason) == (State.BANNED, "", "blocked")
    assert resource.banned_at == NOW
    late = give_back(
        project=pool.project_id,
        resource=resource.pk,
        lease=got.lease,
        outcome=ResourceOutcome.OK,
        now=NOW,
    )
    assert (late.code, late.resource.state) == ("late", State.BANNED)
    pools.unban(resource=resource, actor=person, now=NOW)
    assert take(pool, NOW).resource.pk == resource.pk
    row = Resource.objects.get(pk=resource.pk)
    assert (row.score, row.failures_in_a_row, row.banned_at) == (0.4, 0, None)
    assert trail() == ["seeds.ban_resource", "seeds.unban_resource"]
    entry = AuditRecord.objects.order_by("pk")[0]
    assert entry.actor == person
    assert entry.project_id == pool.project_id
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["state"], entry.after["state"]) == ("leased", "banned")


def test_what_is_disabled_is_not_handed_out_until_it_is_enabled(person: User) -> None:
    pool = make_pool()
    resource = make_resource(pool)
    pools.disable(resource=resource, actor=person)
    assert lease(pool=pool, owner="x", now=NOW) == NoneFree(None)
    pools.enable(resource=resource, actor=person, now=NOW)
    assert take(pool, NOW).resource.pk == resource.pk


def test_a_reset_makes_it_as_good_as_new(person: User) -> None:
    pool = make_pool()
    resource = make_resource(
        pool,
        score=0.1,
        failures_in_a_row=9,
        available_at=after(NOW, 86_400),
        last_used_at=NOW,
        used_count=30,
    )
    pools.reset(resource=resource, actor=person, now=NOW)
    row = Resource.objects.get(pk=resource.pk)
    assert (row.score, row.failures_in_a_row, row.available_at) == (1.0, 0, NOW)
    assert (row.used_count, row.state) == (30, State.FREE)
    assert row.rank == NOW.timestamp() - 86_400


def test_release_takes_it_out_of_its_holders_hands(person: User) -> None:
    pool = make_pool()
    resource = make_resource(pool)
    take(pool, NOW, "run:1:a")
    pools.release(resource=resource, actor=person, now=NOW)
    assert take(pool, NOW, "run:2:a").resource.pk == resource.pk


@pytest.mark.parametrize(
    ("verb", "states"),
    [
        ("ban", {"banned"}),
        ("unban", {"free", "leased", "disabled"}),
        ("disable", {"banned", "disabled"}),
        ("enable", {"free", "leased", "banned"}),
        ("release", {"free", "banned", "disabled"}),
        ("reset", set()),
    ],
)
def test_what_does_not_fit_the_state_is_refused(verb: str, states: set[str], person: User) -> None:
    now = {} if verb == "disable" else {"now": NOW}
    for state in ResourceState.values:
        resource = make_resource(state=state)
        if state in states:
            with pytest.raises(NotInThatState):
                getattr(pools, verb)(resource=resource, actor=person, **now)
        else:
            getattr(pools, verb)(resource=resource, actor=person, **now)


def test_resources_are_made_changed_and_deleted_and_no_record_has_the_secret(person: User) -> None:
    pool = pools.create_pool(
        actor=person, values={"name": "tokens", "project": make_pool().project}
    )
    pools.change_pool(pool=pool, actor=person, values={"rest_seconds": 5})
    made = pools.create_resource(pool=pool, name=" one ", secret=PASSWORD, actor=person)
    assert (made.name, opened(made.secret)) == ("one", {"secret": PASSWORD})
    pools.change_resource(resource=made, actor=person, name="two", secret={"k": PASSWORD + "2"})
    stored = Resource.objects.get(pk=made.pk)
    assert (stored.name, opened(stored.secret)) == ("two", {"k": PASSWORD + "2"})
    pools.delete_resource(resource=made, actor=person)
    pools.delete_pool(pool=pool, actor=person)
    assert trail() == [
        "seeds.add_resourcepool",
        "seeds.change_resourcepool",
        "seeds.add_resource",
        "seeds.change_resource",
        "seeds.delete_resource",
        "seeds.delete_resourcepool",
    ]
    entries = list(AuditRecord.objects.values_list("before", "after", "object_label"))
    assert PASSWORD not in json.dumps(entries)
    assert PASSWORD not in repr([vars(made), made])


def test_names_are_taken_once_in_a_pool(person: User) -> None:
    pool = make_pool()
    first = make_resource(pool, name="a")
    second = make_resource(pool, name="b")
    with pytest.raises(BadResource):
        pools.create_resource(pool=pool, name="a", secret="x", actor=person)
    with pytest.raises(BadResource):
        pools.change_resource(resource=second, name="a", actor=person)
    pools.change_resource(resource=first, name="a", actor=person)
    pools.create_resource(pool=make_pool(), name="a", secret="x", actor=person)


@pytest.mark.parametrize("secret", ["", {}, 5, ["x"], {"k": 1}, {"": "x"}], ids=repr)
def test_a_secret_that_is_none_is_refused(secret: Any, person: User) -> None:
    with pytest.raises(BadResource):
        pools.create_resource(pool=make_pool(), name="a", secret=secret, actor=person)


@pytest.mark.covers("S3.21")
def test_an_import_adds_and_changes_and_leaves_the_rest(person: User) -> None:
    pool = make_pool()
    make_resource(pool, name="ann", secret='{"user": "ann", "password": "old"}', score=0.5)
    make_resource(pool, name="bob", secret='{"user": "bob", "password": "same"}')
    make_resource(pool, name="carl")
    text = f"name,user,password\nann,ann,{PASSWORD}\nbob,bob,same\ndora,dora,d\n"
    done = import_resources(pool=pool, raw=text, kind=FileFormat.CSV, actor=person)
    assert (done.added, done.changed, done.unchanged) == (1, 1, 1)
    ann = Resource.objects.get(pool=pool, name="ann")
    assert (opened(ann.secret)["password"], ann.score) == (PASSWORD, 0.5)
    assert Resource.objects.filter(pool=pool).count() == 4
    entry = AuditRecord.objects.get()
    assert (entry.action, entry.after) == ("seeds.import_resources", done.as_dict())
    again = import_resources(pool=pool, raw=text, kind=FileFormat.CSV, actor=person)
    assert (again.added, again.changed, again.unchanged) == (0, 0, 3)


def test_a_file_with_one_wrong_line_changes_nothing(person: User) -> None:
    pool = make_pool()
    text = f"name,secret\ngood,x\n,{PASSWORD}\n"
    with pytest.raises(UnreadableResources) as caught:
        import_resources(pool=pool, raw=text, kind=FileFormat.CSV, actor=person)
    assert caught.value.fields == {"text": ["Line 3: a name is needed."]}
    assert not pool.resources.exists()
    assert not AuditRecord.objects.exists()


def test_two_thousand_in_few_statements(person: User, django_assert_max_num_queries: Any) -> None:
    pool = make_pool()
    text = "\n".join(f'{{"name": "n{n}", "secret": "s{n}"}}' for n in range(2000))
    with django_assert_max_num_queries(60):
        import_resources(pool=pool, raw=text, kind=FileFormat.JSONL, actor=person)
    assert ResourcePool.objects.get(pk=pool.pk).resources.count() == 2000


def test_an_export_has_everything_but_the_secrets() -> None:
    pool = make_pool()
    make_resource(pool, name="=evil()", score=0.75, last_used_at=NOW)
    make_resource(pool, name="b")
    text = "".join(export_resources(pool))
    rows = list(csv.DictReader(text.removeprefix("\ufeff").splitlines()))
    assert [row["name"] for row in rows] == ["'=evil()", "b"]
    assert (rows[0]["score"], rows[0]["last_used_at"]) == ("0.75", NOW.isoformat())
    assert PASSWORD not in text
    assert "secret" not in rows[0]
