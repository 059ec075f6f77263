"""From a run to its data in a real browser: filter, download, compare, live, delete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.chromium import keep
from tests.e2e.installation import Installation

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
# Two ended runs that differ in one price, and an active one.
_FILL = """
from django.utils import timezone
from apps.datasets.models import Dataset
from tests.datasets.factories import make_items, store
from tests.jobs.factories import make_job, make_run
job = make_job(name="books")
old, new, live = (make_run(job=job, state=state) for state in ("exited", "exited", "running"))
store(old, make_items(60))
store(new, [{**make_items(1)[0], "price": 99.5}, *make_items(59, 2)])
Dataset.objects.update(key_fields=["url"])
store(live, make_items(3))
"""
_MORE = """
from apps.jobs.models import Run
from tests.datasets.factories import make_items, store
store(Run.objects.get(pk=3), make_items(2, 101), first=4)
"""


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The web alone, with items of three runs."""
    with Installation(tmp_path_factory.mktemp("data"), {}) as installation:
        installation.start_some()
        installation.daemons.manage("shell", "-v0", "-c", _FILL)
        yield installation


@pytest.mark.covers("DS.5", "DS.6", "DS.7", "DS.11")
def test_data_of_a_run_is_filtered_downloaded_compared_and_deleted(
    page: Page, problems: list[str], tmp_path: Path
) -> None:
    page.goto("/runs/2")
    page.locator(".cy-tabs").get_by_role("link", name="Data", exact=True).click()
    expect(page.locator(".cy-items tr[data-item]")).to_have_count(50)
    page.locator("#id_field").select_option("price")
    page.locator("#id_op").select_option("at_least")
    page.locator("#id_value").fill("58")
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(page.locator(".cy-chip")).to_have_count(1)
    page.locator("#id_field").select_option("title")
    page.locator("#id_value").fill("Product")
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(page.locator(".cy-chip")).to_have_count(2)
    expect(page.locator(".cy-items tr[data-item]")).to_have_count(4)
    expect(page.locator("#items-title .cy-count")).to_have_text("4 of 60")
    page.locator(".cy-items summary").first.click()
    shown = page.locator(".cy-detail pre").first
    expect(shown).to_be_visible()
    assert json.loads(shown.inner_text())["price"] == 99.5
    keep(page, "data-filtered")
    with page.expect_download() as download:
        page.get_by_role("link", name="csv", exact=True).click()
    file = tmp_path / "items.csv"
    download.value.save_as(file)
    assert len(file.read_text().splitlines()) == 5
    page.locator(".cy-chip a").first.click()
    expect(page.locator(".cy-chip")).to_have_count(1)
    page.locator(".cy-tabs").get_by_role("link", name="Compare", exact=True).click()
    expect(page.locator("#compare-title")).to_have_text("Run #2 against run #1")
    expect(page.locator(".cy-compared")).to_have_count(1)
    expect(page.locator(".cy-compared ins")).to_have_text("99.5")
    page.goto("/runs/1/data")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete data", exact=True).click()
    expect(page.get_by_text("is deleted within a minute")).to_be_visible()
    assert problems == []


@pytest.mark.covers("DS.5")
def test_items_appear_while_a_run_goes_on_and_an_open_one_stays(
    installation: Installation, page: Page, problems: list[str]
) -> None:
    page.goto("/runs/3/data")
    rows = page.locator(".cy-items tr[data-item]")
    expect(rows).to_have_count(3)
    page.locator(".cy-items summary").first.click()
    state = page.locator("[data-connection]")
    expect(state).to_have_attribute("data-kind", "held")
    installation.daemons.manage("shell", "-v0", "-c", _MORE)
    expect(rows).to_have_count(3)
    page.locator(".cy-items summary").first.click()
    expect(rows).to_have_count(5)
    expect(state).to_have_attribute("data-kind", "live")
    assert problems == []
