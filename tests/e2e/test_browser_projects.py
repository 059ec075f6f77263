"""The main path of projects in a real browser: from a git address to a run that is stopped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.chromium import field, keep, watch
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.docker_installation import TAG, docker_installation, push_book_shop
from tests.e2e.forge import deliver_github, github_push
from tests.e2e.installation import PASSWORD, Installation
from tests.plugins.git_server import GitServer, Repository

pytestmark = [
    pytest.mark.services,
    pytest.mark.docker,
    pytest.mark.browser,
    pytest.mark.timeout(600),
]
# The daemons of a whole installation share the machine with the browser.
SLOW = 120_000


@pytest.fixture
def installation(
    tmp_path: Path, redis_url: str, docker_engine: docker.DockerClient
) -> Iterator[Installation]:
    with docker_installation(
        tmp_path / "installation", redis_url=redis_url, engine=docker_engine
    ) as installation:
        yield installation


@pytest.fixture
def page(browser: Browser, installation: Installation, problems: list[str]) -> Iterator[Page]:
    """Of a person who has logged in, and says yes to every question."""
    context = browser.new_context(
        base_url=installation.address, viewport={"width": 1280, "height": 900}
    )
    context.set_default_timeout(SLOW)
    page = context.new_page()
    watch(page, problems)
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto("/admin/login/")
    page.locator("#id_username").fill("admin")
    page.locator("#id_password").fill(PASSWORD)
    page.locator("#id_password").press("Enter")
    page.wait_for_url("**/admin/")
    yield page
    context.close()


def save(page: Page) -> None:
    page.get_by_role("button", name="Save and continue editing").click()
    page.wait_for_url("**/change/")


def ask(page: Page, what: str, state: str) -> None:
    """Press one of the run's buttons, and wait until the page shows what came of it."""
    page.locator(".cy-actions").get_by_role("button", name=what, exact=True).click()
    if what in ("Restart", "Stop"):
        # The page that asks has one button of this name.
        page.locator("#content-main").get_by_role("button", name=what, exact=True).click()
    expect(page.locator("#run [data-state]").first).to_have_attribute(
        "data-state", re.compile(state), timeout=SLOW
    )


def add_project(page: Page, repository: Repository, server: GitServer, base_image: str) -> None:
    page.goto("/admin/projects/project/add/")
    values = {
        "name": "Book shop",
        "slug": "book-shop",
        "allowed_networks": "127.0.0.0/8",
        "git_url": repository.url,
        "git_username": server.username,
        "git_password": server.password,
        "build_arguments": f"BASE_IMAGE={base_image}",
    }
    for name, value in values.items():
        field(page, name).fill(value)
    save(page)
    assert server.password not in page.content()


def ask_git_server(page: Page) -> None:
    page.locator('a[href$="/tags"]').first.click()
    page.get_by_role("button", name="Test connection").click()
    expect(page.locator('p[role="status"]').first).to_contain_text("1 tags; 1 of them fit")
    expect(page.locator("table", has_text=TAG)).to_be_visible()


def receive_delivery(page: Page, project: str, commit: str) -> None:
    """Read the webhook off the page, and push by it as GitHub would."""
    page.goto(project)
    page.locator('a[href$="/webhook"]').first.click()
    webhook = page.url
    address = page.locator("#address").inner_text()
    page.get_by_role("button", name="Show the secret").click()
    secret = page.locator("#secret").inner_text()
    status, answer = deliver_github(address, secret, github_push(TAG, commit))
    assert status == 202, answer
    page.goto(webhook)
    row = page.locator("table tr", has_text=TAG)
    expect(row).to_contain_text("build queued")
    row.get_by_role("link").first.click()


def see_build(page: Page) -> None:
    """From the delivery's page to its build, until that has succeeded."""
    page.get_by_role("link", name=TAG).first.click()
    expect(page.locator("[data-log]")).to_contain_text("Successfully built", timeout=SLOW)
    state = page.locator("[data-build-live] [data-state]")
    expect(state).to_have_attribute("data-state", "succeeded", timeout=SLOW)
    keep(page, "build", whole=False)


def start_job(page: Page, site: CountingSite) -> None:
    page.goto("/admin/jobs/job/add/")
    field(page, "project").select_option(label="Book shop")
    field(page, "name").fill("the whole shop")
    image = field(page, "image")
    image.select_option(index=1)
    assert "book-shop" in image.locator("option:checked").inner_text()
    field(page, "spider").select_option("book_shop:BookShop")
    field(page, "arguments").fill(f'{{"url": "{site.url}"}}')
    field(page, "speed").fill("20")
    # In the night of the thirtieth of December: nothing of the cron disturbs the test.
    field(page, "cron").fill("30 3 30 12 *")
    field(page, "time_zone").fill("Europe/Berlin")
    save(page)
    page.goto(re.sub(r".*/job/(\d+)/change/", r"/jobs/\1", page.url))
    # In UTC.
    expect(page.locator("body")).to_contain_text("12-30 02:30")
    keep(page, "job", whole=False)
    page.get_by_role("button", name="Start").first.click()
    page.wait_for_url(re.compile(r"/runs/\d+$"))


def operate_run(page: Page, site: CountingSite, installation: Installation) -> None:
    state = page.locator("#run [data-state]").first
    expect(state).to_have_attribute("data-state", "running", timeout=SLOW)
    installation.rest.until(lambda: sum(site.hits.values()) > 20, "requests")
    ask(page, "Pause", "paused")
    ask(page, "Resume", "running")
    ask(page, "Restart", "stopping|starting")
    expect(state).to_have_attribute("data-state", "running", timeout=SLOW)
    ask(page, "Stop", "exited|cancelled")
    expect(state).to_have_attribute("data-final", "true", timeout=SLOW)
    run = page.locator("#run")
    expect(run).to_contain_text("All requests accounted for.", timeout=SLOW)
    for answered in ("pause", "resume", "restart"):
        expect(run).to_contain_text(answered)


@pytest.mark.covers("S1.1", "S1.2", "S1.3", "S1.4", "S1.8", "S1.9", "S1.10")
def test_from_a_git_address_to_a_run_that_is_stopped(
    page: Page,
    installation: Installation,
    git_server: GitServer,
    spider_image: str,
    tmp_path: Path,
    problems: list[str],
) -> None:
    repository = push_book_shop(git_server, tmp_path)
    commit = repository.tag(TAG)
    add_project(page, repository, git_server, spider_image)
    project = page.url
    ask_git_server(page)
    receive_delivery(page, project, commit)
    see_build(page)
    installation.rest.until(installation.agents_serve, "agents")
    with CountingSite(tree(3000)) as site:
        start_job(page, site)
        operate_run(page, site, installation)
    assert problems == []
