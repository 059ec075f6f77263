"""Requests of runs: accounting, list, groups, export; failed ones in a run of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.datasets.models import Dataset, DatasetRun, StoredFile
from apps.datasets.queries.files import files_of_run
from apps.datasets.queries.items import run_accounting
from apps.datasets.services import request_retries
from apps.datasets.services.datasets import destination
from apps.jobs.daemon.specs import spec_of
from apps.jobs.models import Run
from apps.jobs.runners.base import CannotRun
from apps.jobs.states import RunState
from apps.queuestats.models import RunCounter
from apps.runtime.services.objects import shared_objects
from tests.access.factories import enter, make_user
from tests.datasets.kept import keep, page_of
from tests.datasets.requests import SECRET, make_failure, make_request, store_requests
from tests.jobs.factories import make_job, make_run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("OB.3")]


@pytest.fixture
def run() -> Run:
    """Three successes, two failures of one cause, one of another, one refused."""
    run = make_run(job=make_job(name="shop"), state=RunState.EXITED, arguments={"pages": 3})
    rows = [make_request(number) for number in (1, 2, 3)]
    rows += [make_failure(4, parent=1), make_failure(5)]
    gone = {"kind": "http", "group": "HTTP 404", "error": "HTTP 404", "status": 404}
    rows.append(make_failure(6, **gone, traceback="", request=None, not_saved="too large"))
    rows.append(make_failure(7, outcome="refused", kind="robots", group="robots: refused"))
    for row in rows:
        if row.get("request", 0) is None:
            del row["request"]
    store_requests(run, rows)
    return run


def client_of(run: Run, role: Role) -> APIClient:
    client = APIClient()
    client.force_authenticate(make_user(roles={run.job.project: role}))
    return client


def numbers(answer: Any) -> list[int]:
    assert answer.status_code == 200, answer.content
    return [row["id"] for row in answer.json()["results"]]


def test_requests_are_filtered_sorted_and_paged(run: Run) -> None:
    client, path = client_of(run, Role.VIEWER), f"/api/v1/runs/{run.pk}/requests"
    assert numbers(client.get(path)) == [1, 2, 3, 4, 5, 6, 7]
    assert numbers(client.get(path, {"filter": "outcome:equals:failed"})) == [4, 5, 6]
    assert numbers(client.get(path, {"filter": "status:at_least:400"})) == [6]
    assert numbers(client.get(path, {"sort": "-elapsed_ms", "limit": 2})) == [7, 6]
    assert numbers(client.get(path, {"text": "/p/5"})) == [5]
    page = client.get(path, {"limit": 5}).json()
    assert numbers(client.get(path, {"cursor": page["next"]})) == [6, 7]
    row = client.get(path, {"filter": "id:equals:4"}).json()["results"][0]
    assert (row["parent"], row["saved"], row["identity"]) == (1, True, f"{run.pk}-b1-4")
    stranger = client_of(make_run(), Role.ADMIN)
    assert stranger.get(path).status_code == 404


def test_what_makes_a_request_again_is_shown_to_nobody(run: Run) -> None:
    client, path = client_of(run, Role.ADMIN), f"/api/v1/runs/{run.pk}/requests"

    async def read(answer: Any) -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    assert SECRET not in client.get(path).content.decode()
    for form in ("jsonl", "csv", "json"):
        content = asyncio.run(read(client.get(path, {"format": form, "download": 1})))
        assert b"/p/4" in content
        assert SECRET.encode() not in content
    assert client.get(path, {"text": SECRET}).json()["results"] == []
    for query in ({"filter": f"request:contains:{SECRET}"}, {"sort": "request"}):
        assert client.get(path, query).status_code == 400
    asked = client.get(path, {"format": "jsonl", "fields": "request"})
    assert asked.status_code == 400


def test_failures_are_grouped_by_their_cause(run: Run) -> None:
    client = client_of(run, Role.VIEWER)
    groups = client.get(f"/api/v1/runs/{run.pk}/requests/failures").json()
    assert [(group["group"], group["count"], group["kind"]) for group in groups] == [
        ("ValueError: no price (shop.py:12 parse)", 2, "callback"),
        ("HTTP 404", 1, "http"),
        ("robots: refused", 1, "robots"),
    ]
    assert groups[0]["traceback"].endswith("ValueError: no price")
    empty = make_run(job=make_job(project=run.job.project))
    assert client.get(f"/api/v1/runs/{empty.pk}/requests/failures").json() == []
    assert numbers(client.get(f"/api/v1/runs/{empty.pk}/requests")) == []


def test_rows_stored_are_the_requests_that_ended(run: Run) -> None:
    path = f"/api/v1/runs/{run.pk}/requests/accounting"
    client = client_of(run, Role.VIEWER)
    RunCounter.objects.create(
        project=run.job.project, owner=run.owner, boot="b1", updated_at=timezone.now(),
        total=9, success=4, failed=5,
    )  # fmt: skip
    counted = {"ended": 9, "stored": 7, "lost": 0, "in_flight": 2, "deleted": 0, "filtered": 0}
    assert client.get(path).json() == counted
    # The process was killed, and started again: what it had not sent does not come any more.
    store_requests(run, [make_request(1)], boot="b2")
    DatasetRun.objects.update(settled_at=timezone.now())
    assert client.get(path).json() == {**counted, "stored": 8, "lost": 1, "in_flight": 0}
    assert run_accounting(run.pk).yielded == 0
    lists = client.get("/api/v1/datasets").json()
    assert lists["results"] == []


def retried(answer: Any) -> tuple[Run, dict[str, Any]]:
    assert answer.status_code == 201, answer.content
    return Run.objects.get(pk=answer.json()["run"]), answer.json()


def urls_of(run: Run) -> list[str]:
    content = shared_objects().get(run.requests_object)
    lines = zstandard.ZstdDecompressor().stream_reader(content).readall().splitlines()
    return [msgspec.json.decode(line)["url"].rpartition("/")[2] for line in lines]


@pytest.mark.covers("OB.4")
def test_failed_requests_are_made_again_in_a_run_of_their_own(
    run: Run, tmp_path: Path, settings: Any
) -> None:
    client, path = client_of(run, Role.OPERATOR), f"/api/v1/runs/{run.pk}/requests/retry"
    again, body = retried(client.post(path, {}, format="json"))
    assert (body["requests"], body["left_out"]) == (3, {"too large": 1})
    assert urls_of(again) == ["4", "5", "7"]
    assert (again.job, again.requests_of, again.arguments) == (run.job, run, {"pages": 3})
    assert list(run.request_retries.all()) == [again]
    assert destination(f"run:{again.pk}").dataset_id == destination(f"run:{run.pk}").dataset_id
    record = AuditRecord.objects.get(action="datasets.retry_requests")
    assert record.after == {"run": again.pk, "requests": 3}
    with pytest.raises(CannotRun, match="OBJECTS_PUBLIC_URL"):
        spec_of(again, tmp_path)
    settings.OBJECTS_PUBLIC_URL = "http://objects.example:8003"
    address = spec_of(again, tmp_path).environment["CRAWLYARD_REQUESTS"]
    assert again.requests_object in address
    assert "CRAWLYARD_REQUESTS" not in spec_of(run, tmp_path).environment
    # No file of the run to look at: it holds cookies.
    assert not files_of_run(again).exists()
    assert StoredFile.objects.get().run_number == again.pk


@pytest.mark.covers("OB.4")
def test_groups_filters_and_selected_requests_are_made_again(run: Run) -> None:
    client, path = client_of(run, Role.OPERATOR), f"/api/v1/runs/{run.pk}/requests/retry"
    for body, urls in (
        ({"group": "ValueError: no price (shop.py:12 parse)"}, ["4", "5"]),
        ({"requests": [f"{run.pk}-b1-5", f"{run.pk}-b1-1"]}, ["5"]),
        ({"filter": ["kind:equals:robots"]}, ["7"]),
        ({"text": "/p/4"}, ["4"]),
    ):
        again, _answer = retried(client.post(path, body, format="json"))
        assert urls_of(again) == urls
        Run.objects.filter(pk=again.pk).update(state=RunState.CANCELLED, ended_at=timezone.now())
    nothing = client.post(path, {"filter": ["kind:equals:http"]}, format="json")
    assert (nothing.status_code, nothing.json()["code"]) == (409, "nothing_to_retry")
    assert "1 × too large" in nothing.content.decode()


@pytest.mark.covers("OB.4")
def test_a_retry_needs_the_right_to_start_runs(run: Run) -> None:
    path = f"/api/v1/runs/{run.pk}/requests/retry"
    assert client_of(run, Role.VIEWER).post(path, {}, format="json").status_code == 403
    viewer = enter(make_user(roles={run.job.project: Role.VIEWER}))
    assert viewer.post(f"/runs/{run.pk}/requests/retry").status_code == 403
    assert not Run.objects.filter(requests_of=run).exists()


@pytest.mark.covers("OB.4")
def test_a_retry_takes_no_more_than_its_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_retries, "MOST_REQUESTS", 2)
    path = f"/api/v1/runs/{run.pk}/requests/retry"
    _again, body = retried(client_of(run, Role.OPERATOR).post(path, {}, format="json"))
    assert body["requests"] == 2
    assert sum(body["left_out"].values()) == 2


def text_at(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.slow("2 s")
def test_the_page_shows_requests_groups_and_the_way_to_the_other_run(run: Run) -> None:
    operator = enter(make_user(roles={run.job.project: Role.OPERATOR}))
    page = f"/runs/{run.pk}/requests"
    text = text_at(operator, page)
    for part in ("ValueError: no price (shop.py:12 parse)", "Retry all failed", "/p/7", "HTTP 404"):
        assert part in text
    assert SECRET not in text
    failed = text_at(operator, f"{page}?filter=outcome:equals:failed")
    assert failed.count("data-request=") == 3
    assert text_at(operator, f"{page}/live").count("data-request=") == 7
    viewer = enter(make_user(roles={run.job.project: Role.VIEWER}))
    assert "Retry" not in text_at(viewer, page)
    answer = operator.post(f"{page}/retry", {"selected": "1", "request": [f"{run.pk}-b1-5"]})
    again = Run.objects.get(requests_of=run)
    assert answer.headers["Location"].endswith(f"/runs/{again.pk}")
    assert urls_of(again) == ["5"]
    assert f"#{again.pk}" in text_at(operator, page)
    assert f"#{run.pk}" in text_at(operator, f"/runs/{again.pk}/requests")
    for part in ("<script>", "Traceback"):
        assert (part in text) == (part == "Traceback")


def test_a_run_without_rows_says_why(run: Run) -> None:
    other = make_run(job=make_job(project=run.job.project), state=RunState.EXITED)
    viewer = enter(make_user(roles={run.job.project: Role.VIEWER}))
    assert "stored no requests" in text_at(viewer, f"/runs/{other.pk}/requests")
    assert Dataset.objects.filter(kind="requests").count() == 1


def test_a_request_leads_to_its_kept_page_and_back(run: Run, tmp_path: Path) -> None:
    url = "https://shop.example/p/{}"
    pages = [page_of("<p>", url=url.format(number), number=number) for number in (4, 6)]
    # Another request of an execution before a restart.
    pages.append(page_of("<p>", url="https://shop.example/other", number=5))
    warc = keep(run, pages, tmp_path)
    viewer = enter(make_user(roles={run.job.project: Role.VIEWER}))
    html = viewer.get(f"/runs/{run.pk}/requests").content.decode()
    page = f"/runs/{run.pk}/pages/{warc}/1"
    assert page in html
    assert html.count("Kept page") == 2
    back = viewer.get(page).content.decode()
    address = f"/runs/{run.pk}/requests?filter=id%3Aequals%3A4&amp;filter=url%3Aequals%3A"
    assert address in back


def test_filtered_duplicates_are_counted(run: Run) -> None:
    RunCounter.objects.create(
        owner=run.owner,
        project_id=run.job.project_id,
        boot="b1",
        seq=1,
        updated_at=timezone.now(),
        filtered=12,
    )
    answer = client_of(run, Role.VIEWER).get(f"/api/v1/runs/{run.pk}/requests/accounting")
    assert answer.json()["filtered"] == 12
    viewer = enter(make_user(roles={run.job.project: Role.VIEWER}))
    assert 'data-filtered="12"' in viewer.get(f"/runs/{run.pk}/requests").content.decode()
