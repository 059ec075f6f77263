"""The main path of the router in a real browser: from the first rule to a version that is gone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
import redis
from playwright.sync_api import Browser, Locator, Page, StorageState, expect

from apps.routing.engine.files.data import to_data
from apps.routing.engine.rules import Inbound, Outbound, RuleSet
from tests.e2e.chromium import SLOW, keep, watch
from tests.e2e.demo_process import free_port
from tests.e2e.installation import Installation
from tests.e2e.rest import send

pytestmark = [pytest.mark.services, pytest.mark.browser, pytest.mark.timeout(600)]
RULES = "/admin/routing/routerreport/rules/"
ROUTER = "/admin/routing/routerreport/"
PAGES = {
    "router": ROUTER,
    "rules": RULES,
    "items": "/admin/routing/routeditem/",
    "find": "/admin/routing/routeditem/find",
    "parked": "/admin/routing/routeditem/parked",
    "dead-letters": "/admin/routing/routeditem/dead-letters",
    "explain": "/routing/explain",
    "replay": "/routing/replay",
}


@pytest.fixture(scope="module")
def installation(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str
) -> Iterator[Installation]:
    """The web and a router, with Redis for what is routed."""
    folder = tmp_path_factory.mktemp("routing")
    with Installation(folder, {"REDIS_URL": redis_url}) as installation:
        installation.start_some("router")
        yield installation


# --- the editor ---------------------------------------------------------------------------------


def lines(page: Page, of: str) -> Locator:
    return page.locator(f'[data-list="{of}"] > .cy-rule')


def line(page: Page, of: str, name: str) -> Locator:
    return page.locator(f'[data-list="{of}"] > .cy-rule[data-name="{name}"]')


def typed(where: Locator, field: str) -> Locator:
    """The control of a field, whichever group it is folded in."""
    group = where.locator("details.cy-group", has=where.page.locator(f'[data-field="{field}"]'))
    if group.count() and group.get_attribute("open") is None:
        group.locator("summary").click()
    return where.locator(f'[data-field="{field}"]').locator("input,select,textarea").first


def add(page: Page, of: str, name: str, cls: str, condition: str = "", **fields: str) -> Locator:
    """Write a new entry into the form."""
    page.locator(f'[data-add="{of}"]').click()
    last = lines(page, of).last
    typed(last, "name").fill(name)
    entry = line(page, of, name)
    typed(entry, "class").select_option(cls)
    for field, value in fields.items():
        typed(entry, field.replace("__", ".")).fill(value)
    if condition:
        entry.get_by_role("button", name="Add a condition").click()
        typed(entry, "selector").fill(condition)
    return entry


def names(page: Page, of: str) -> list[str]:
    return [str(each.get_attribute("data-name")) for each in lines(page, of).all()]


def save(page: Page, note: str, number: int) -> None:
    said = page.locator("[data-said]")
    page.locator("[data-note]").fill(note)
    page.locator("[data-save-button]").click()
    page.wait_for_url(re.compile(rf"version={number}$"))
    expect(page.locator("#version-title")).to_contain_text(f"Rules v{number}")
    expect(said).to_be_empty()


def activate(page: Page, number: int) -> None:
    page.get_by_role("button", name=f"Activate v{number}").click()
    expect(page.locator("body")).to_contain_text(f"v{number} is now active.")


def see_it_run(page: Page, number: int) -> None:
    """The router applies a version within a second; the page says so without being asked."""
    page.goto(ROUTER)
    expect(page.locator("[data-runners]")).to_have_text(f"1 of 1 on v{number}", timeout=SLOW)
    expect(page.locator("[data-connection]")).to_have_text("Live")


def drag_above(page: Page, entry: Locator, other: Locator) -> None:
    """As a hand does it: in more than one move."""
    entry.locator("[data-handle]").hover()
    page.mouse.down()
    box = other.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 60, box["y"] + 12, steps=6)
    page.mouse.move(box["x"] + 60, box["y"] + 4, steps=3)
    page.mouse.up()


def write_the_first_rules(page: Page) -> None:
    page.goto(RULES)
    expect(page.locator("#version-title")).to_contain_text("New rules")
    add(page, "inbound", "web", "http.HttpInbound")
    outbound = {"init__url": "{redis_url}", "cls": "redis_queue.RedisListOutbound"}
    add(page, "outbound", "rest", condition="task_type", init__key="rest_spider", **outbound)
    captcha = add(
        page, "outbound", "captcha", condition="task_type == '破码' and and rt", **outbound
    )
    typed(captcha, "init.key").fill("captcha_spider")
    # While somebody types, the page says what is wrong, and where.
    wrong = captcha.locator('[data-field="selector"] .cy-danger-text')
    expect(wrong).to_contain_text("character 23")
    expect(wrong.locator("mark")).to_have_text("a")
    keep(page, "routing-rules-wrong")
    typed(captcha, "selector").fill("task_type == '破码' and rt")
    expect(wrong).to_have_count(0)
    typed(captcha, "constants").fill("task_src: 3")
    typed(captcha, "retry_limits").fill("5")
    assert names(page, "outbound") == ["rest", "captcha"]
    # The first that matches takes an item: the narrower one must stand above.
    for name in ("rest", "captcha"):
        line(page, "outbound", name).locator('[data-press="edit"]').click()
    drag_above(page, captcha, line(page, "outbound", "rest"))
    assert names(page, "outbound") == ["captcha", "rest"]
    line(page, "outbound", "captcha").locator('[data-press="down"]').press("Enter")
    assert names(page, "outbound") == ["rest", "captcha"]
    line(page, "outbound", "captcha").locator('[data-press="up"]').press("Enter")
    assert names(page, "outbound") == ["captcha", "rest"]
    line(page, "outbound", "rest").locator('[data-press="copy"]').click()
    assert names(page, "outbound") == ["captcha", "rest", "rest copy"]
    line(page, "outbound", "rest copy").locator('[data-press="delete"]').click()
    page.locator("[data-said]").get_by_role("button", name="Undo").click()
    assert names(page, "outbound") == ["captcha", "rest", "rest copy"]
    line(page, "outbound", "rest copy").locator('[data-press="enable"]').uncheck()
    expect(line(page, "outbound", "rest copy")).to_contain_text("disabled")
    keep(page, "routing-rules")
    save(page, "the first rules", 1)


def submit(installation: Installation, **item: object) -> str:
    """One item by the seed's own path, as an integrator submits it."""
    code, _headers, answer = send(
        f"{installation.address}/projects/default/task/",
        method="POST",
        body=json.dumps(item).encode(),
        headers={**installation.rest.headers, "Content-Type": "application/json"},
    )
    assert code in (200, 201, 202), answer
    found = re.search(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", answer)
    assert found is not None, answer
    return found[0].decode()


def count_of(page: Page, outbound: str, what: str) -> Locator:
    return page.locator(f'[data-outbound="{outbound}"] [data-count="{what}"]')


@pytest.mark.covers("S2.3", "S2.6", "S2.7", "S2.16")
def test_rules_are_written_explained_replayed_activated_and_reverted(
    page: Page, installation: Installation, redis_url: str, problems: list[str]
) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    write_the_first_rules(page)
    activate(page, 1)
    see_it_run(page, 1)

    # An item goes the way that the rules say, and the page shows it without being asked.
    uuid = submit(installation, task_type="破码", rt=True, province="GD")
    expect(count_of(page, "captcha", "dispatched")).to_have_text("1")
    expect(page.locator('[data-books="received"]')).to_have_text("1")
    with redis.Redis.from_url(redis_url) as client:
        sent = json.loads(client.lindex("captcha_spider", 0))
    assert (sent["task_uuid"], sent["task_src"]) == (uuid, 3)
    keep(page, "routing-router")

    # What happened to it, and why.
    page.goto(f"{PAGES['find']}?value={uuid}")
    page.wait_for_url("**/change/")
    expect(page.locator(".cy-timeline")).to_contain_text("dispatched")
    keep(page, "routing-item")
    page.get_by_role("link", name="Explain", exact=True).click()
    expect(page.locator("#outcome")).to_contain_text("Sent to captcha")
    keep(page, "routing-explain")

    # Another version would do otherwise with it: seen before it is activated.
    page.goto(RULES)
    line(page, "outbound", "captcha").locator('[data-press="edit"]').click()
    selector = typed(line(page, "outbound", "captcha"), "selector")
    selector.fill("task_type == '破码' and rt and province == 'JS'")
    save(page, "only JS", 2)
    page.get_by_role("link", name="Replay recent tasks").click()
    expect(page.locator("#outcome")).to_contain_text("1 of 1 tasks would be routed differently")
    keep(page, "routing-replay")

    page.goto(RULES)
    activate(page, 2)
    see_it_run(page, 2)
    submit(installation, task_type="破码", rt=True, province="GD")
    expect(count_of(page, "rest", "dispatched")).to_have_text("1")
    expect(count_of(page, "captcha", "dispatched")).to_have_text("1")
    expect(page.locator(".cy-balance")).to_contain_text("All tasks accounted for")

    page.goto(RULES)
    page.get_by_role("link", name="History, revert").click()
    page.get_by_role("button", name="Revert to previous version").click()
    expect(page.locator("body")).to_contain_text("v1 is now active.")
    see_it_run(page, 1)
    assert problems == []
    assert installation.tracebacks() == {}


def test_the_second_of_two_editors_keeps_the_draft(
    page: Page, browser: Browser, session: StorageState, installation: Installation
) -> None:
    for each in (page, page.context.new_page()):
        each.goto(RULES)
        if not lines(each, "inbound").count():
            add(each, "inbound", "web", "http.HttpInbound")
            each.locator("[data-save-button]").click()
            each.wait_for_url(re.compile(r"version=\d+$"))
    first, second = page.context.pages
    first.reload()
    second.reload()
    newest = int(re.findall(r"v(\d+)", first.locator("#version-title").inner_text())[0])
    for each, note in ((first, "mine"), (second, "yours")):
        line(each, "inbound", "web").locator('[data-press="edit"]').click()
        typed(line(each, "inbound", "web"), "note").fill(note)
    first.locator("[data-save-button]").click()
    first.wait_for_url(re.compile(rf"version={newest + 1}$"))
    second.locator("[data-save-button]").click()
    said = second.locator("[data-said]")
    expect(said).to_contain_text(f"admin saved v{newest + 1} in the meantime.")
    expect(typed(line(second, "inbound", "web"), "note")).to_have_value("yours")
    said.get_by_role("button", name="Save my draft").click()
    second.wait_for_url(re.compile(rf"version={newest + 2}$"))
    expect(line(second, "inbound", "web")).to_contain_text("yours")


@pytest.mark.covers("S2.38")
def test_the_page_says_that_redis_is_gone(page: Page, installation: Installation) -> None:
    nobody = f"redis://127.0.0.1:{free_port()}/0"
    rules = RuleSet(
        project="default",
        inbounds=(Inbound("web", "http.HttpInbound"),),
        outbounds=(
            Outbound(
                "gone",
                "redis_queue.RedisListOutbound",
                {"url": nobody, "key": "gone"},
                ("task_type == 'lost?'",),
            ),
        ),
    )
    rest = installation.rest
    (project,) = rest.rows("/projects")
    saved = rest.make(
        "/config/versions", kind="routing", project=project["id"], data=to_data(rules)
    )
    rest.act(f"/config/versions/{saved['version']['id']}/activate")
    page.goto(ROUTER)
    submit(installation, task_type="lost?")
    troubles = page.locator("[data-troubles]")
    expect(troubles).to_contain_text("Redis does not answer: gone. 1 task is parked")
    expect(troubles).to_contain_text("nothing is lost")
    expect(page.locator('[data-outbound="gone"]')).to_contain_text("unreachable")
    expect(page.locator('[data-books="parked"]')).to_have_text("1")
    keep(page, "routing-away")
    page.locator('[data-books="parked"] a').click()
    expect(page.locator('[data-lot="gone"]')).to_contain_text("target unreachable")


@pytest.mark.parametrize(
    "scheme", ["light", pytest.param("dark", marks=pytest.mark.long("the same in light"))]
)
@pytest.mark.parametrize("name", list(PAGES))
def test_pages_fit_a_phone(
    browser: Browser,
    installation: Installation,
    session: StorageState,
    problems: list[str],
    name: str,
    scheme: str,
) -> None:
    context = browser.new_context(
        base_url=installation.address,
        viewport={"width": 390, "height": 844},
        storage_state=session,
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    watch(page, problems)
    page.goto(PAGES[name])
    page.wait_for_load_state()
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390, f"{name} is {width} wide"
    keep(page, f"routing-{name}-phone-{scheme}")
    context.close()
    assert problems == []
