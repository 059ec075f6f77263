"""Everyday tasks from the overview in a real browser, each within its number of clicks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.chromium import keep
from tests.e2e.installation import Installation
from tests.plugins.browser_session import OpenPage, fits

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
# Two ended runs, the later with failed requests that can be made again and a kept page of one.
_FILL = """
import tempfile
from datetime import timedelta
from pathlib import Path
from django.utils import timezone
from apps.datasets.models import Dataset
from apps.jobs.models import JobLink
from apps.jobs.services import sync_schedule
from apps.queuestats.models import JobDay
from tests.datasets.factories import make_items, store
from tests.datasets.kept import keep, page_of
from tests.datasets.requests import make_failure, make_request, store_requests
from tests.jobs.factories import make_job, make_run
from tests.queuestats.factories import report
now = timezone.now()
job = make_job(name="books", cron="0 */6 * * *", speed=2.0)
JobLink.objects.create(job=make_job(name="prices", project=job.project), after=job)
old, new = (
    make_run(
        job=job, state="exited", created_at=now - timedelta(hours=hours), host="box-1",
        started_at=now - timedelta(hours=hours), ended_at=now - timedelta(hours=hours - 1),
        requests_total=60, requests_failed=2, items=60,
    )
    for hours in (5, 3)
)
store(old, make_items(60))
store(new, [{**make_items(1)[0], "price": 99.5}, *make_items(59, 2)])
Dataset.objects.update(key_fields=["url"])
for run in (old, new):
    report(run, total=60, success=58, failed=2, items=60, bytes_received=4000, final=True, pages=58)
store_requests(new, [make_request(1), make_failure(2), make_failure(3)])
keep(new, [page_of("<p>no price", status=404)], Path(tempfile.mkdtemp()))
sync_schedule(job=job, now=now)
JobDay.objects.update(
    day=now.date(), runs_succeeded=2, runs_with_errors=1, runs_failed=1, run_seconds=7200
)
"""


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The web alone, with two runs of a job."""
    with Installation(tmp_path_factory.mktemp("tasks"), {}) as installation:
        installation.start_some()
        installation.daemons.manage("shell", "-v0", "-c", _FILL)
        yield installation


@dataclass
class Walk:
    """Clicks from the overview on."""

    page: Page
    clicks: int = 0

    def click(self, target: Locator) -> None:
        """Click, and count it."""
        target.click()
        self.clicks += 1

    def tab(self, name: str) -> None:
        """Choose a tab of a run or a job."""
        self.click(self.page.locator(".cy-tabs").get_by_role("link", name=name, exact=True))

    def run(self, number: int) -> Locator:
        """The row of a run among the recent ones."""
        return self.page.get_by_role("row").filter(has_text=f"books #{number}")


@pytest.fixture
def walk(page: Page) -> Walk:
    page.goto("/admin/")
    return Walk(page)


@pytest.mark.covers("UX.2", "UX.4")
def test_items_of_the_last_run_are_two_clicks_away_and_three_as_csv(
    walk: Walk, problems: list[str], tmp_path: Path
) -> None:
    page = walk.page
    walk.click(walk.run(2).get_by_role("link", name="60", exact=True))
    expect(page.locator(".cy-items tr[data-item]").first).to_be_visible()
    assert walk.clicks <= 2
    with page.expect_download() as download:
        walk.click(page.get_by_role("link", name="csv", exact=True))
    download.value.save_as(tmp_path / "items.csv")
    assert len((tmp_path / "items.csv").read_text().splitlines()) == 61
    assert walk.clicks <= 3
    assert problems == []


@pytest.mark.covers("UX.4")
def test_a_run_is_compared_with_the_previous_one_in_three_clicks(
    walk: Walk, problems: list[str]
) -> None:
    page = walk.page
    walk.click(walk.run(2).get_by_role("link", name="books #2"))
    expect(page.locator('[data-measure="items"]')).to_contain_text("60 → 60")
    keep(page, "run-previous")
    walk.click(page.get_by_role("link", name="Compare with previous"))
    expect(page.locator(".cy-compared ins")).to_have_text("99.5")
    assert walk.clicks <= 3
    assert problems == []


@pytest.mark.covers("UX.4")
def test_why_requests_failed_is_three_clicks_away_and_four_to_retry(
    walk: Walk, problems: list[str]
) -> None:
    page = walk.page
    walk.click(walk.run(2).get_by_role("link", name="2", exact=True))
    expect(page.locator("#failures-title")).to_be_visible()
    expect(page.get_by_text("ValueError: no price").first).to_be_visible()
    requests = page.url
    walk.tab("Pages")
    walk.click(page.locator('a[href*="/pages/"]').first)
    expect(page.locator("body")).to_contain_text("404")
    assert walk.clicks <= 3
    page.goto(requests)
    walk.clicks = 1
    walk.click(page.get_by_role("button", name="Retry all failed"))
    page.wait_for_url(re.compile(r"/runs/\d+$"))
    expect(page.locator("body")).to_contain_text("2 failed requests are made again by this run.")
    assert walk.clicks <= 4
    assert problems == []


@pytest.mark.covers("UX.3")
def test_a_job_is_scheduled_daily_at_six_in_four_clicks(walk: Walk, problems: list[str]) -> None:
    page = walk.page
    walk.click(page.locator("#by-job + table").get_by_role("link", name="books", exact=True))
    keep(page, "job-overview")
    walk.tab("Schedule")
    walk.click(page.get_by_role("button", name="Daily at 06:00"))
    expect(page.locator("[data-words]")).to_have_text("Every day at 06:00")
    expect(page.locator("[data-times] li")).to_have_count(5)
    keep(page, "job-schedule")
    walk.click(page.get_by_role("button", name="Save", exact=True))
    expect(page.locator("body")).to_contain_text("Schedule saved.")
    assert walk.clicks <= 4
    page.locator("#id_cron").fill("0 77 * * *")
    expect(page.locator("[data-words]")).to_contain_text("hour")
    # The preview answers 400, which the browser notes.
    assert [text for text in problems if "400" not in text] == []


@pytest.mark.covers("UX.2")
def test_a_job_is_started_in_two_clicks_and_a_refused_start_offers_to_queue(
    walk: Walk, problems: list[str]
) -> None:
    page = walk.page
    walk.click(page.get_by_role("link", name="Start job"))
    row = page.get_by_role("row").filter(has_text="prices")
    walk.click(row.get_by_role("button", name="Start"))
    page.wait_for_url(re.compile(r"/runs/\d+$"))
    assert walk.clicks <= 2
    run = page.url.rpartition("/")[2]
    page.goto("/admin/jobs/job/")
    page.get_by_role("link", name="prices", exact=True).click()
    page.locator(".cy-head").get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("link", name=f"Open run {run}")).to_be_visible()
    page.get_by_role("button", name="Start when it has ended").click()
    page.wait_for_url(re.compile(r"/runs/\d+$"))
    expect(page.locator("body")).to_contain_text(f"Starts when run {run} has ended.")
    assert problems == []


LOOKS = [
    ("en", "light", False),
    pytest.param("zh-hans", "dark", True, marks=pytest.mark.long("the same in light")),
]
PAGES = (
    "/admin/",
    "/jobs/1",
    "/jobs/1/runs",
    "/jobs/1/alerts",
    "/admin/jobs/job/1/schedule",
    "/runs/2",
    "/runs/2/log",
    "/runs/2/settings",
    "/schedule",
    "/schedule/timeline",
    "/schedule/timeline?by=host&hours=168",
    "/schedule/dependencies",
)


@pytest.mark.covers("UX.5")
@pytest.mark.parametrize(("language", "scheme", "phone"), LOOKS)
def test_these_pages_are_for_everybody(
    open_page: OpenPage,
    accessible: Callable[[Page], list[str]],
    problems: list[str],
    language: str,
    scheme: Literal["light", "dark"],
    phone: bool,
) -> None:
    page = open_page(language, scheme, phone=phone)
    wrong = []
    for number, address in enumerate(PAGES):
        page.goto(address)
        page.wait_for_load_state("load")
        wrong += [f"{address}: {each}" for each in accessible(page)]
        if not fits(page):
            wrong.append(f"{address}: too wide")
        keep(page, f"people-{number}-{language}-{scheme}-{phone}")
    assert wrong == []
    assert problems == []
