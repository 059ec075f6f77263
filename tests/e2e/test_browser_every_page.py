"""Every page that a link leads to, from the home page on: it is whole, in both languages.

Pages are found by following links, so that a new one is looked at without being named here; what
must be among them is named, so that none gets lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, Literal
from urllib.parse import urlsplit

import pytest
from django.urls import resolve
from playwright.sync_api import Page

from tests.e2e.chromium import keep
from tests.e2e.installation import Installation
from tests.plugins.browser_session import OpenPage, fits

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

# Every list and every thing in one: the names of the admin's addresses, without the ending.
BOTH: Final = (
    "access_apitoken access_auditrecord access_user agents_agent agents_allocation"
    " agents_hostrule agents_hoststate alerts_channel alerts_incident alerts_notice"
    " configcenter_configuration configcenter_configversion django_celery_beat_periodictask"
    " jobs_host jobs_job jobs_plannedrun joblogs_logpolicy projects_build projects_delivery"
    " projects_image projects_project routing_routeditem"
    " runtime_daemon runtime_deadletter runtime_outboxmessage seeds_frontier seeds_resource"
    " seeds_resourcepool sources_credential sources_harvest"
)
PAGES: Final = {
    *(f"{each}_changelist" for each in BOTH.split()),
    *(f"{each}_change" for each in BOTH.split()),
    "alerts_rule",
    "calendar",
    "dependencies",
    "job",
    "job-alerts",
    "job-runs",
    "jobs_job_schedule",
    "run-log",
    "run-settings",
    "timeline",
    "alerts_rulemute_changelist",
    "auth_group_changelist",
    "configcenter_configuration_add",
    "errors",
    "health",
    "index",
    "jobs_run_changelist",
    "log",
    "password_change",
    "projects_project_tags",
    "projects_project_webhook",
    "queuestats_failedrequest_changelist",
    "queuestats_queue",
    "queuestats_queuestate_changelist",
    "requeststore_biz",
    "requeststore_extract",
    "requeststore_look_up",
    "requeststore_queuereport_changelist",
    "requeststore_rebalance",
    "requeststore_request",
    "requeststore_requests",
    "requeststore_samplepage_changelist",
    "requeststore_shardreport_changelist",
    "requeststore_try_out",
    "routing-explain",
    "routing-replay",
    "routing_dead_letters",
    "routing_find",
    "routing_parked",
    "routing_routerreport_changelist",
    "routing_rules",
    "run",
    "runbook",
    "search",
    "seeds_frontier_granularity",
    "seeds_frontier_look_up",
    "seeds_frontier_seeds",
    "seeds_frontier_wipe",
    "sources_source",
    "sources_sourcestate_changelist",
}
# Those that no link leads to but keys do.
STARTS: Final = ("/admin/", "/admin/keys")
# What is saved or ends the session, and the pages that the schema of REST has.
NO_PAGES: Final = re.compile(r"/(export|item\.json|download|logout/?)$|^/(api|static)/")


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The web alone, after a busy day."""
    with Installation(tmp_path_factory.mktemp("every"), {}) as installation:
        installation.start_some()
        installation.fill()
        yield installation


def name_of(address: str) -> str:
    """The name of the route, by which a page of one thing stands for those of all."""
    match = resolve(urlsplit(address).path)
    # One list of each app, and one history of each kind of thing, would be the same page again.
    return "history" if (match.url_name or "").endswith("_history") else match.url_name or ""


def links(page: Page, base: str) -> list[str]:
    """Where the links of the page lead within this web, without the ending of lists."""
    found: list[str] = page.eval_on_selector_all(
        "a[href]:not([download])", "all => all.map((each) => each.href)"
    )
    return [
        each.removeprefix(base).partition("#")[0]
        for each in found
        if each.startswith(f"{base}/") and not NO_PAGES.search(urlsplit(each).path)
    ]


@pytest.mark.parametrize(
    ("language", "scheme", "phone"),
    [
        pytest.param("en", "light", False, marks=pytest.mark.long("the same, dark and in Chinese")),
        ("zh-hans", "dark", True),
    ],
)
def test_every_page_is_whole(
    installation: Installation,
    open_page: OpenPage,
    accessible: Callable[[Page], list[str]],
    problems: list[str],
    language: str,
    scheme: Literal["light", "dark"],
    phone: bool,
) -> None:
    page = open_page(language, scheme, phone=phone)
    wrong, waiting, seen = [], list(STARTS), {name_of(each) for each in STARTS}
    while waiting:
        address = waiting.pop(0)
        answer = page.goto(address)
        assert answer is not None
        name = name_of(address)
        if answer.status != 200:
            wrong.append(f"{address}: {answer.status}")
            continue
        if page.locator("html").get_attribute("lang") != language:
            wrong.append(f"{address}: in another language")
        page.wait_for_load_state()
        wrong += [f"{address}: {each}" for each in accessible(page)]
        wrong += [f"{address}: {each}" for each in problems]
        problems.clear()
        if not fits(page):
            wrong.append(f"{address}: too wide")
        keep(page, f"every-{name}-{language}-{scheme}{'-phone' if phone else ''}")
        for link in links(page, installation.address):
            if name_of(link) not in seen:
                seen.add(name_of(link))
                waiting.append(link)
    assert wrong == []
    assert PAGES - seen == set()
    assert installation.tracebacks() == {}
