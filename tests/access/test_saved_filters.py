"""Filters that people keep: saved, found again, renamed, deleted; by page and by REST."""

from __future__ import annotations

import pytest
from django.urls import reverse

from apps.access.errors import BadFilter, FilterNameTaken, TooManyFilters
from apps.access.models import AuditRecord, SavedFilter, User
from apps.access.services import clean_query, delete_filter, filters, rename_filter, save_filter
from apps.access.states import Role
from tests.access.factories import Api, enter, make_project, make_superuser, make_user
from tests.confirmation import confirm

pytestmark = pytest.mark.django_db

RUNS = "/admin/jobs/run/"
FAILED = "state__in=failed%2Clost"


@pytest.fixture
def person() -> User:
    return make_superuser()


def kept(user: User, name: str = "Broken", query: str = FAILED) -> SavedFilter:
    return save_filter(user=user, path=RUNS, name=name, query=query)


def test_the_place_in_the_list_is_no_part_of_a_filter() -> None:
    assert clean_query("?q=a&p=3&after=x&empty=&state=failed") == "q=a&state=failed"
    assert clean_query("q=%E6%96%B0%E9%97%BB&q=b") == "q=%E6%96%B0%E9%97%BB&q=b"


def test_each_step_is_in_the_trail(person: User) -> None:
    saved = kept(person, name="  Broken   runs ")
    assert (saved.name, saved.address) == ("Broken runs", f"{RUNS}?{FAILED}")
    rename_filter(user=person, saved=saved, name="Lost")
    delete_filter(user=person, saved=saved)
    actions = AuditRecord.objects.filter(actor=person).order_by("id").values_list("action")
    verbs = ("save", "rename", "delete")
    assert list(actions) == [(f"access.{verb}_filter",) for verb in verbs]
    assert not SavedFilter.objects.exists()


@pytest.mark.parametrize(
    ("path", "name", "query"),
    [
        ("https://evil.example/", "x", "q=1"),
        ("//evil.example/", "x", "q=1"),
        ("/nowhere/at/all", "x", "q=1"),
        (RUNS, "", "q=1"),
        (RUNS, "\x00 ", "q=1"),
        (RUNS, "x" * 61, "q=1"),
        (RUNS, "x", ""),
        (RUNS, "x", "p=3"),
        (RUNS, "x", "q=%00"),
        (RUNS, "x", "q=" + "a" * 2001),
        (RUNS, "x", "&".join(f"a{number}=1" for number in range(200))),
    ],
)
def test_what_is_no_filter_is_refused(person: User, path: str, name: str, query: str) -> None:
    with pytest.raises(BadFilter):
        save_filter(user=person, path=path, name=name, query=query)


def test_names_are_taken_once_and_pages_fill_up(
    person: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(person)
    with pytest.raises(FilterNameTaken):
        kept(person)
    other = kept(person, name="Other")
    with pytest.raises(FilterNameTaken):
        rename_filter(user=person, saved=other, name="Broken")
    kept(make_user())
    monkeypatch.setattr(filters, "MOST_FILTERS", 2)
    with pytest.raises(TooManyFilters):
        kept(person, name="Third")


@pytest.mark.slow("2 s")
def test_a_list_offers_to_keep_its_filter_and_shows_those_kept(person: User) -> None:
    client = enter(person)
    adding = reverse("access:filter-add")
    assert adding not in client.get(RUNS).content.decode()
    assert adding in client.get(f"{RUNS}?{FAILED}").content.decode()
    form = {"path": RUNS, "name": "<i>Broken", "query": FAILED}
    answer = client.post(adding, form, follow=True)
    html = answer.content.decode()
    assert answer.redirect_chain == [(f"{RUNS}?{FAILED}", 302)]
    assert 'aria-current="true">&lt;i&gt;Broken</a>' in html
    assert adding not in html
    assert "&lt;i&gt;Broken</a>" in client.get(RUNS).content.decode()
    assert "Broken" not in client.get("/admin/jobs/job/").content.decode()
    saved = SavedFilter.objects.get()
    client.post(reverse("access:filter-rename", args=[saved.pk]), {"name": "Lost", "back": RUNS})
    assert "Lost</a>" in client.get(RUNS).content.decode()
    gone = confirm(client, reverse("access:filter-delete", args=[saved.pk]), {"back": RUNS})
    assert gone["Location"] == RUNS
    assert not SavedFilter.objects.exists()


@pytest.mark.slow("1 s")
def test_buttons_lead_to_no_other_server(person: User) -> None:
    client = enter(person)
    for back in ("https://evil.example/", "//evil.example", "javascript:alert(1)", ""):
        saved = kept(person)
        answer = confirm(client, reverse("access:filter-delete", args=[saved.pk]), {"back": back})
        assert answer["Location"] == "/admin/"
    form = {"path": "//evil.example/", "name": "x", "query": "q=1"}
    assert client.post(reverse("access:filter-add"), form)["Location"] == "/admin/"
    assert client.get(reverse("access:filter-add")).status_code == 405


def test_others_neither_see_nor_touch_it(person: User) -> None:
    saved = kept(person)
    stranger = make_superuser()
    assert "Broken" not in enter(stranger).get(RUNS).content.decode()
    for name in ("rename", "delete"):
        address = reverse(f"access:filter-{name}", args=[saved.pk])
        assert enter(stranger).post(address, {"name": "x"}).status_code == 404
    assert Api(stranger).get("saved-filters").json()["results"] == []
    assert Api(stranger).delete(f"saved-filters/{saved.pk}").status_code == 404


def test_rest_does_the_same() -> None:
    project = make_project()
    person = make_user(roles={project: Role.VIEWER})
    api = Api(person)
    body = {"path": RUNS, "name": "Broken", "query": FAILED}
    made = api.post("saved-filters", body)
    assert made.status_code == 201
    assert api.post("saved-filters", body).json()["code"] == "filter_name_taken"
    assert api.post("saved-filters", body | {"path": "//x"}).json()["code"] == "bad_filter"
    one = f"saved-filters/{made.json()['id']}"
    assert api.patch(one, {"name": "Lost", "query": "q=1"}).json()["query"] == FAILED
    assert [row["name"] for row in api.get(f"saved-filters?path={RUNS}").json()["results"]] == [
        "Lost"
    ]
    narrow = Api(person, project=project)
    assert narrow.get("saved-filters").json()["results"] == []
    assert narrow.post("saved-filters", body).status_code == 403
    assert api.delete(one).status_code == 204
