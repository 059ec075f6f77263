"""The page "Test rule", in the admin and in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from apps.access.states import Role
from apps.projects.models import Project
from apps.requeststore.engine.entity import Entity
from apps.requeststore.models import SamplePage
from apps.requeststore.services.rule_tests import write_definition
from apps.requeststore.services.store import shared_request_store
from tests.access.factories import enter, make_project, make_superuser, make_user
from tests.confirmation import confirm
from tests.e2e.chromium import keep, launched, watch
from tests.requeststore.tester.shop import RULE, make_sample, shop

VIEW = "admin:requeststore_samplepage_changelist"
pytestmark = [pytest.mark.covers("S4.5", "S4.9"), pytest.mark.django_db]


def person(project: Project, role: Role = Role.VIEWER) -> Client:
    return enter(make_user(roles={project: role}))


def asked(project: Project, **more: Any) -> dict[str, Any]:
    """What the form posts."""
    values = {"biz": f"{project.pk}.news", "rule": "list", "what": "try", "sample": ""}
    return values | {"definition": write_definition(RULE)} | more


def posted(client: Client, body: dict[str, Any], status: int = 200) -> str:
    answer = client.post(reverse(VIEW), body)
    assert answer.status_code == status, answer.content
    return str(answer.content.decode())


def test_a_project_that_is_gone_takes_no_page_with_it(
    project: Project, sample: SamplePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = shared_request_store()
    gone = replace(yard.biz(project.pk, "news"), project_id=project.pk + 1000)
    bizzes = [gone, *yard.bizzes()]
    monkeypatch.setattr(yard, "bizzes", lambda: bizzes)
    html = enter(make_superuser()).get(reverse(VIEW)).content.decode()
    assert f"{project.pk}.news" in html
    assert f"{gone.project_id}.news" not in html


def test_the_page_begins_with_the_active_rule(project: Project, sample: SamplePage) -> None:
    html = person(project).get(reverse(VIEW)).content.decode()
    assert "h2::text" in html
    assert f"#{sample.pk} https://shop.example/list" in html
    assert 'value="download"' not in html
    html = person(project, Role.EDITOR).get(reverse(VIEW), {"rule": "new"}).content.decode()
    assert "The active settings have no rule of this name" in html
    assert 'value="download"' in html


def test_strangers_and_other_projects_see_nothing(project: Project, sample: SamplePage) -> None:
    assert Client().get(reverse(VIEW)).status_code == 302
    html = person(make_project(), Role.ADMIN).get(reverse(VIEW)).content.decode()
    assert "shop.example" not in html
    assert "Request groups of your projects appear here." in html


@pytest.mark.slow("1 s")
def test_a_rule_is_tried_on_kept_pages(project: Project, sample: SamplePage) -> None:
    client = person(project)
    same = posted(client, asked(project))
    assert "The result of 0 of 1 page would change" in same
    assert "Same result as the active rule." in same
    other = RULE | {"fields": {"title": "h2", "stock": {"css": "i.stock", "as": "integer"}}}
    html = posted(client, asked(project, definition=write_definition(other)))
    assert "The result of 1 of 1 page would change" in html
    assert "<code>fields.stock</code>" in html
    assert "茶壶" in html


def test_a_fault_is_shown_at_its_character(project: Project, sample: SamplePage) -> None:
    bad = {"fields": {"a": {"xpath": "//a[@x==1]"}}}
    html = posted(person(project), asked(project, definition=write_definition(bad)))
    assert "Invalid rule" in html
    assert "//a[@x=<mark>=</mark>1]" in html
    html = posted(person(project), asked(project, definition="fields: ["))
    assert "line 2: not valid YAML" in html


@pytest.mark.slow("1 s")
def test_a_page_is_pasted_or_uploaded_and_kept_by_editors_alone(project: Project) -> None:
    url = "https://shop.example/x"
    pasted = asked(project, body="<div class=item><h2>新</h2></div>", url=url, status="200")
    html = posted(person(project), pasted)
    assert "新" in html
    assert not SamplePage.objects.exists()
    posted(person(project), pasted | {"what": "keep"}, 403)
    posted(person(project), pasted | {"what": "download"}, 403)
    editor = person(project, Role.EDITOR)
    file = SimpleUploadedFile("page.html", b"<meta charset=gbk>" + shop("茶").body)
    html = posted(editor, asked(project, what="keep", url=url, file=file))
    kept = SamplePage.objects.get()
    assert f"Stored as sample page #{kept.pk}" in html
    assert "茶" in html
    assert kept.url == url
    posted(person(project), asked(project, drop=str(kept.pk)), 403)
    assert confirm(editor, reverse(VIEW), asked(project, drop=str(kept.pk))).status_code == 302
    assert not SamplePage.objects.exists()


def test_refusals_stand_at_their_fields(project: Project) -> None:
    editor = person(project, Role.EDITOR)
    assert "No page to test on" in posted(editor, asked(project))
    assert "Enter a URL." in posted(editor, asked(project, what="download"))
    html = posted(editor, asked(project, what="download", url="http://127.0.0.1:1/"))
    assert "The page could not be downloaded." in html
    assert "Use an http or https URL." in posted(
        editor, asked(project, what="download", url="file:///etc/passwd")
    )
    assert not SamplePage.objects.exists()


def test_markup_of_a_page_is_only_text_here(project: Project) -> None:
    evil = "<script>alert(1)</script>"
    page = f"<div class=item><h2>&lt;script&gt;alert(1)&lt;/script&gt;</h2>{evil}</div>"
    html = posted(person(project), asked(project, body=page))
    assert evil not in html
    assert "&lt;script&gt;" in html


def test_a_stored_request_brings_its_rule_and_its_address(project: Project) -> None:
    yard = shared_request_store()
    bound = yard.biz(project.pk, "news")
    entity = Entity(url="https://shop.example/x", params={"q": "茶"}, rule="other")
    [number] = yard.submit(bound, [entity], by="test", now=yard.now())
    asked = {"biz": f"{project.pk}.news", "request": str(number)}
    html = person(project).get(reverse(VIEW), asked).content.decode()
    assert 'value="https://shop.example/x?q=%E8%8C%B6"' in html
    assert "Rule other" in html
    for unknown in ("1", "x", "9" * 30):
        answer = person(project).get(reverse(VIEW), asked | {"request": unknown})
        assert answer.status_code == 200
        assert "Rule list" in answer.content.decode()


@contextmanager
def browsing(address: str, session: Any, scheme: Any, width: int) -> Iterator[BrowserPage]:
    """A page of that person, on which nothing goes wrong."""
    problems: list[str] = []
    with launched() as browser:
        context = browser.new_context(
            base_url=address, color_scheme=scheme, viewport={"width": width, "height": 900}
        )
        context.add_cookies([{"name": session.key, "value": session.value, "url": address}])
        page = context.new_page()
        watch(page, problems)
        yield page
        context.close()
    assert problems == []


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_in_a_browser(live_server: Any, project: Project, scheme: str, width: int) -> None:
    make_sample(project)
    make_sample(project, shop("灯", price="sold out"))
    session = person(project, Role.EDITOR).cookies[settings.SESSION_COOKIE_NAME]
    other = write_definition(RULE | {"fields": {"title": "h2", "cost": {"css": ".p"}}})
    with browsing(live_server.url, session, scheme, width) as page:
        page.goto(reverse(VIEW))
        page.get_by_role("button", name="Test", exact=True).click()
        expect(page.locator("#outcome-title")).to_contain_text("0 of 2 pages")
        keep(page, f"try-rule-{width}")
        page.locator("#id_definition").fill(other)
        page.get_by_role("button", name="Test", exact=True).click()
        expect(page.locator("#outcome-title")).to_contain_text("2 of 2 pages")
        root = "document.documentElement"
        assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
        keep(page, f"try-rule-changed-{width}")
        page.locator("#id_definition").fill('fields: {a: {xpath: "//a[@x==1]"}}')
        page.get_by_role("button", name="Test", exact=True).click()
        expect(page.locator(".cy-wrong-place mark")).to_have_text("=")
        keep(page, f"try-rule-refused-{width}")
