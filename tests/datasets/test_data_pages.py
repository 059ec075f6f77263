"""Pages of items: filters, columns, links and files; of runs, jobs and projects."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.utils import timezone
from django.utils.translation import override

from apps.access.states import Role
from apps.datasets.engine.checks import BadChecks, read_checks
from apps.datasets.engine.filters import FilterOp, ItemFilter, read_filter, written
from apps.datasets.models import Dataset, DatasetRun, Delivery
from apps.datasets.services.files import store_chunk
from apps.datasets.texts import reason_text, shown_checks, text_of
from apps.jobs.models import Run
from apps.jobs.states import RunState
from tests.access.factories import Api, enter, make_user
from tests.datasets.factories import NOW, make_chunks, make_items, store
from tests.jobs.factories import make_job, make_run

pytestmark = pytest.mark.django_db
SECRET_SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def run() -> Run:
    run = make_run(state=RunState.EXITED)
    store(run, make_items(60))
    return run


@pytest.fixture
def viewer(run: Run) -> Client:
    return enter(make_user(roles={run.job.project: Role.VIEWER}))


def text_at(client: Client, address: str, **headers: Any) -> str:
    answer = client.get(address, **headers)
    assert answer.status_code == 200, address
    return answer.content.decode()


def content_of(response: Any) -> bytes:
    """Content that an asynchronous server streams."""

    async def joined() -> bytes:
        return b"".join([piece async for piece in response.streaming_content])

    return async_to_sync(joined)()


def urls_of(client: Client, address: str) -> list[str]:
    """Values of the column `url` of a page."""
    rows = client.get(address).context["view"].rows
    return [row.item.data["url"].rpartition("/")[2] for row in rows]


# --- filters ----------------------------------------------------------------------------------


@pytest.mark.slow("2 s")
@pytest.mark.covers("DS.5")
def test_several_filters_hold_at_once_and_each_can_be_removed(run: Run, viewer: Client) -> None:
    page = f"/runs/{run.pk}/data"
    address = f"{page}?filter=price:at_least:20&filter=price:at_most:22&filter=stock:not_equals:6"
    assert urls_of(viewer, address) == ["21"]
    view = viewer.get(address).context["view"]
    assert (view.total, view.all) == (1, 60)
    assert [chip.field for chip in view.asked.chips()] == ["price", "price", "stock"]
    (first, _second, last) = (chip.without for chip in view.asked.chips())
    assert urls_of(viewer, f"{page}?{last}") == ["20", "21"]
    assert len(urls_of(viewer, f"{page}?{first}")) == 18


@pytest.mark.covers("DS.5")
def test_the_form_adds_a_filter_to_the_address_and_keeps_the_rest(run: Run, viewer: Client) -> None:
    page = f"/runs/{run.pk}/data"
    sent = "?filter=price:at_least:20&text=&sort=&show=title&field=title&op=contains&value=2"
    answer = viewer.get(page + sent)
    assert answer.status_code == 302
    parameters = parse_qs(urlsplit(answer["Location"]).query)
    assert parameters == {"filter": ["price:at_least:20", "title:contains:2"], "show": ["title"]}
    # The same filter is not added twice, and one without a value is none.
    again = viewer.get(f"{answer['Location']}&field=title&op=contains&value=2")
    assert parse_qs(urlsplit(again["Location"]).query)["filter"] == parameters["filter"]
    assert viewer.get(f"{page}?field=title&op=equals&value=")["Location"] == page
    # Without a value it may be asked whether there is one.
    present = viewer.get(f"{page}?field=title&op=missing&value=x")
    assert parse_qs(urlsplit(present["Location"]).query) == {"filter": ["title:missing"]}


@pytest.mark.covers("DS.5")
def test_columns_order_and_downloads_are_in_the_address(run: Run, viewer: Client) -> None:
    page = f"/runs/{run.pk}/data?show=title&show=price&sort=-price&filter=stock:equals:3"
    answer = viewer.get(page)
    assert [head.field for head in answer.context["view"].headings] == ["title", "price"]
    assert urls_of(viewer, page)[:2] == ["59", "52"]
    text = unescape(answer.content.decode())
    (csv,) = re.findall(r'href="(/api/v1/[^"]*format=csv[^"]*)"', text)
    lines = content_of(viewer.get(csv)).decode().splitlines()
    assert lines[0].replace('"', "") == "title,price"
    assert lines[1].replace('"', "") == "Product 59,59.5"
    assert len(lines) == 1 + len([n for n in range(1, 61) if n % 7 == 3])


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("filter=nosuch:equals:1", "There is no field “nosuch”."),
        ("filter=price", "“price” is not a filter."),
        ("filter=price:like:1", "“price:like:1” is not a filter."),
        ("show=nosuch", "This filter cannot be used."),
        ("values=nosuch", "There is no field “nosuch”."),
        ("after=zz", "is not a cursor of this list."),
        ("&".join(["filter=price:equals:1"] * 21), "At most 20 filters."),
    ],
)
def test_what_cannot_be_used_is_said(run: Run, viewer: Client, parameters: str, said: str) -> None:
    assert said in text_at(viewer, f"/runs/{run.pk}/data?{parameters}")


@pytest.mark.slow("2 s")
def test_pages_follow_each_other_and_newest_items_come_first_while_a_run_goes_on(
    run: Run, viewer: Client
) -> None:
    page = f"/runs/{run.pk}/data"
    first = viewer.get(page).context["view"]
    assert (len(first.rows), first.total) == (50, 60)
    assert urls_of(viewer, f"{page}?{first.next}") == [str(n) for n in range(51, 61)]
    Run.objects.filter(pk=run.pk).update(state=RunState.RUNNING, ended_at=None)
    assert urls_of(viewer, page)[:2] == ["60", "59"]
    assert urls_of(viewer, f"{page}/live")[:2] == ["60", "59"]
    # Somebody who chooses the other order gets it.
    assert urls_of(viewer, f"{page}?sort=")[:2] == ["1", "2"]
    assert 'data-fragment="' in text_at(viewer, page)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("price:at_least:3", ItemFilter("price", FilterOp.AT_LEAST, "3")),
        ("schema:price:equals:a:b", ItemFilter("schema:price", FilterOp.EQUALS, "a:b")),
        ("title:equals:", ItemFilter("title", FilterOp.EQUALS, "")),
        ("title:missing", ItemFilter("title", FilterOp.MISSING)),
    ],
)
def test_filters_are_written_as_they_are_read(text: str, condition: ItemFilter) -> None:
    assert read_filter(text) == condition
    assert written(condition) == text


# --- values -----------------------------------------------------------------------------------


@pytest.mark.covers("DS.5")
def test_values_become_links_only_if_they_are_web_addresses(viewer: Client, run: Run) -> None:
    items = [
        {"site": "https://shop.example/a?b=1&c=2", "bad": "javascript:alert(1)"},
        {"site": "http://shop.example/cover.JPG", "bad": SECRET_SCRIPT, "n": {"x": [1]}},
    ]
    store(run, items, first=61, url="javascript:alert(2)")
    text = text_at(viewer, f"/runs/{run.pk}/data?sort=-site&show=site&show=bad&show=n")
    assert SECRET_SCRIPT not in text
    assert 'href="javascript:' not in text
    (link,) = re.findall(r'<a href="https://shop\.example/a[^>]*>', text)
    assert 'rel="noopener noreferrer"' in link
    assert 'target="_blank"' in link
    # An image of somebody else is a link with a mark; it is not loaded.
    assert "cy-image-mark" in text
    assert not re.findall(r'<img[^>]*src="http', text)
    assert "{&quot;x&quot;:[1]}" in text


@pytest.mark.covers("DS.5", "DS.12")
def test_files_of_the_run_are_shown_from_the_store(viewer: Client, run: Run) -> None:
    for name, kind, size in (
        ("a.png", "image/png", 10),
        ("big.png", "image/png", 3 << 20),
        ("b.pdf", "application/pdf", 10),
    ):
        for chunk in make_chunks(run, name, b"x" * size):
            assert (
                store_chunk(chunk=msgspec.structs.replace(chunk, content_type=kind), now=NOW) == ""
            )
    items = [
        {"files": ["crawlyard-file:a.png", {"path": "crawlyard-file:b.pdf"}], "z": 1},
        {"files": "crawlyard-file:big.png", "z": 2},
        {"files": "crawlyard-file:../nosuch.png", "z": 3},
    ]
    store(run, items, first=61)
    page = f"/runs/{run.pk}/data?filter=z:present&show=files"
    rows = viewer.get(page).context["view"].rows
    shown = [[(file.name, file.is_image) for file in row.cells[0].files] for row in rows]
    assert shown == [[("a.png", True), ("b.pdf", False)], [("big.png", False)], []]
    assert rows[2].cells[0].text == "crawlyard-file:../nosuch.png"
    text = text_at(viewer, page)
    (picture,) = re.findall(r'<img[^>]*src="([^"]*)"[^>]*loading="lazy"', text)
    answer = viewer.get(picture)
    assert (answer.status_code, answer["Content-Type"]) == (200, "image/png")
    assert Dataset.objects.get().stored_files.count() == 3


@pytest.mark.covers("DS.5")
def test_statistics_of_a_field_are_those_of_the_filtered_items(run: Run, viewer: Client) -> None:
    view = viewer.get(f"/runs/{run.pk}/data?values=price&filter=price:at_most:10").context["view"]
    assert (view.values.count, view.values.low, view.values.high) == (9, "1.5", "9.5")
    assert sum(each.count for each in view.bins) == 9
    # A frequent value leads to its items.
    view = viewer.get(f"/runs/{run.pk}/data?values=stock").context["view"]
    (address,) = (value.address for value in view.top if value.text == "3")
    assert urls_of(viewer, f"/runs/{run.pk}/data?{address}")[:2] == ["3", "10"]


@pytest.mark.covers("DS.8")
def test_the_history_of_a_key_is_one_click_away(run: Run, viewer: Client) -> None:
    dataset = Dataset.objects.get()
    later = make_run(job=run.job, state=RunState.EXITED)
    store(later, make_items(2, title="Newer"))
    page = f"/runs/{later.pk}/data"
    assert viewer.get(page).context["view"].rows[0].history == ""
    Dataset.objects.update(key_fields=["url"])
    history = viewer.get(page).context["view"].rows[0].history
    rows = viewer.get(f"/data/{dataset.pk}?{history}").context["view"].rows
    assert [(row.item.run, row.item.data["title"]) for row in rows] == [
        (later.pk, "Newer"),
        (run.pk, "Product 1"),
    ]


# --- jobs and projects ------------------------------------------------------------------------


@pytest.mark.slow("1 s")
@pytest.mark.covers("DS.5", "DS.8")
def test_a_job_shows_its_items_over_all_runs_and_the_latest_of_each_key(
    run: Run, viewer: Client
) -> None:
    later = make_run(job=run.job, state=RunState.EXITED)
    store(later, make_items(2, title="Newer"))
    page = f"/jobs/{run.job_id}/data"
    assert viewer.get(page).context["view"].total == 62
    assert "Set the key" in text_at(viewer, page)
    Dataset.objects.update(key_fields=["url"])
    view = viewer.get(f"{page}?latest=on").context["view"]
    assert (view.total, view.all) == (60, 62)
    assert [row.item.run for row in view.rows[:2]] == [run.pk, run.pk]
    newer = viewer.get(f"{page}?latest=on&filter=title:equals:Newer").context["view"]
    assert newer.total == 2
    assert f'href="{page}"' in text_at(viewer, f"/admin/jobs/job/{run.job_id}/change/")


@pytest.mark.covers("DS.5")
def test_a_project_lists_its_datasets_with_deliveries_that_are_behind(
    run: Run, viewer: Client
) -> None:
    project = run.job.project
    page = f"/projects/{project.pk}/data"
    store(make_run(job=make_job(project=project, name="other")), make_items(3))
    dataset = Dataset.objects.get(name=run.job.name)
    since = timezone.now() - timedelta(minutes=42)
    for name, fields in {
        "late": {"behind_since": since, "state": "failing", "failed": 7},
        "later": {"behind_since": since + timedelta(minutes=40)},
        "paused": {"behind_since": since - timedelta(days=1), "state": "paused"},
    }.items():
        Delivery.objects.create(dataset=dataset, name=name, kind="folder", **fields)
    rows = {row.name: (last, copies) for row, last, copies in viewer.get(page).context["rows"]}
    assert set(rows) == {run.job.name, "other"}
    last, copies = rows[run.job.name]
    assert last.run_number == run.pk
    assert (copies.number, copies.failing, copies.failed) == (3, 1, 7)
    assert copies.behind_since == since
    assert rows["other"][1] is None
    text = text_at(viewer, page).replace("\xa0", " ")
    assert "42 minutes behind" in text
    assert f'href="{page}"' in text_at(viewer, f"/admin/projects/project/{project.pk}/change/")


def test_empty_pages_say_what_appears_and_how(viewer: Client, run: Run) -> None:
    job = make_job(project=run.job.project, name="quiet")
    quiet = make_run(job=job, state=RunState.EXITED)
    assert "appear here with its first run" in text_at(viewer, f"/jobs/{job.pk}/data")
    assert "This run has stored no items." in text_at(viewer, f"/runs/{quiet.pk}/data")
    assert "appear here once both have items" in text_at(viewer, f"/runs/{quiet.pk}/compare")
    DatasetRun.objects.filter(run_number=run.pk).update(deleted_at=NOW, deleted_items=60)
    Dataset.objects.get().files.all().delete()
    assert "The 60 items of this run were deleted" in text_at(viewer, f"/runs/{run.pk}/data")


def test_strangers_see_neither_jobs_nor_projects(run: Run) -> None:
    stranger = enter(make_user(roles={make_run().job.project: Role.ADMIN}))
    for address in (
        f"/jobs/{run.job_id}/data",
        f"/projects/{run.job.project_id}/data",
        f"/runs/{run.pk}/data",
        f"/runs/{run.pk}/data/live",
    ):
        assert stranger.get(address).status_code == 404


# --- languages --------------------------------------------------------------------------------


@pytest.mark.covers("DS.9")
def test_findings_of_checks_are_in_the_language_of_whoever_reads_them(
    run: Run, viewer: Client
) -> None:
    results = [
        {
            "check": "items_at_least",
            "ok": False,
            "text": "60 items, at least 100 expected",
            "template": "%(found)s items, at least %(least)s expected",
            "params": {"found": 60, "least": 100},
        },
        # Found by an earlier version.
        {"check": "range", "ok": True, "text": "price has no values"},
    ]
    DatasetRun.objects.update(checked=results, reasons={'"price" is a required property': 2})
    page = f"/runs/{run.pk}/data"
    text = text_at(viewer, page)
    assert "60 items, at least 100 expected" in text
    assert "price has no values" in text
    assert "price: is missing" in text
    chinese = text_at(viewer, page, headers={"Accept-Language": "zh-hans"})
    assert "60 条数据，至少应有 100 条" in chinese
    api = Api(make_user(roles={run.job.project: Role.VIEWER}))
    dataset = Dataset.objects.get()
    (row,) = api.get(f"datasets/{dataset.pk}/runs").json()["results"]
    assert row["checked"][0] == {
        "check": "items_at_least",
        "ok": False,
        "text": "60 items, at least 100 expected",
    }


@pytest.mark.covers("DS.6")
def test_errors_of_queries_follow_the_language_of_the_request(run: Run, viewer: Client) -> None:
    address = f"/api/v1/runs/{run.pk}/items?filter=nosuch:equals:1"
    for language, said in (
        ("en", "There is no field “nosuch”."),
        ("zh-hans", "没有字段“nosuch”。"),
    ):
        answer = viewer.get(address, headers={"Accept-Language": language})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_item_query")
        assert answer.json()["detail"] == said
    chinese = viewer.get(
        f"/runs/{run.pk}/data?filter=nosuch:equals:1", headers={"Accept-Language": "zh-hans"}
    )
    assert "没有字段“nosuch”。" in chinese.content.decode()


@override("en")
def test_texts_of_errors_and_reasons() -> None:
    with pytest.raises(BadChecks) as raised:
        read_checks([{"check": "range", "field": "a"}])
    assert text_of(raised.value) == "Check 1: range needs min or max"
    assert reason_text("price: type") == "price: wrong type"
    assert reason_text("a: b: maxLength") == "a: b: too long"
    assert reason_text("anything else") == "anything else"
    # A percent sign of a value is no parameter.
    assert text_of(BadChecks("%(why)s", why="100 %d")) == "100 %d"
    assert shown_checks([]) == []
