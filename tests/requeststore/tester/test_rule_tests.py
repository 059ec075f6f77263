"""Trying rules beside the active ones, and the pages that are kept for it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.projects.models import Project
from apps.requeststore.engine.biz import Biz, Fetch
from apps.requeststore.errors import BadSample, BadTest, NotFetched, TooManySamples
from apps.requeststore.extraction import ResponsePage
from apps.requeststore.models import SamplePage
from apps.requeststore.services import sample_pages
from apps.requeststore.services.kind import BizKind
from apps.requeststore.services.rule_tests import read_definition, try_rule, write_definition
from apps.requeststore.services.sample_pages import (
    MAX_BODY_BYTES,
    drop_page,
    fetch_page,
    keep_page,
    page_of,
)
from tests.access.factories import make_user
from tests.requeststore.tester.shop import BIZ, RULE, shop

pytestmark = [pytest.mark.covers("S4.5", "S4.9"), pytest.mark.django_db]
ACTIVE = BIZ["rules"]


def other(**fields: Any) -> dict[str, Any]:
    """The rule with other fields."""
    rule = copy.deepcopy(RULE)
    rule["fields"] |= fields
    return rule


def test_what_would_change_is_told_before_it_is_saved(sample: SamplePage) -> None:
    """Value by value, beside what the active rule gives."""
    edited = other(price={"css": ".p::text", "as": "text"})
    tested = try_rule(active=ACTIVE, name="list", definition=edited, pages=[sample])
    assert (tested.refused, tested.changed, tested.left) == (False, 1, 0)
    trial = tested.trials[0]
    assert trial.before is not None
    assert [each["title"] for each in trial.after.records] == ["茶壶", "杯子"]
    assert [(each.record, each.field, each.before, each.after) for each in trial.changes] == [
        (0, "price", "12", '"12"'),
        (1, "price", "12", '"12"'),
    ]
    assert [(each.place, each.count) for each in trial.explained.matched] == [
        ("each", 2),
        ("fields.title", 2),
        ("fields.price", 2),
        ("follow[0]", 1),
    ]
    assert trial.explained.encoding == "gb18030"


def test_the_same_rule_changes_nothing(sample: SamplePage) -> None:
    for definition in (None, copy.deepcopy(RULE)):
        tested = try_rule(active=ACTIVE, name="list", definition=definition, pages=[sample])
        assert (tested.changed, tested.trials[0].changes) == (0, [])


def test_a_rule_that_would_fail_where_the_active_one_does_not(sample: SamplePage) -> None:
    edited = other(stock={"css": ".stock", "required": True})
    tested = try_rule(active=ACTIVE, name="list", definition=edited, pages=[sample])
    assert tested.changed == 1
    assert tested.trials[0].after.failed


def test_a_bad_rule_is_not_tried(sample: SamplePage) -> None:
    edited = other(price={"css": ".p[", "as": "money"})
    tested = try_rule(active=ACTIVE, name="list", definition=edited, pages=[sample])
    assert tested.refused
    assert not tested.trials
    assert {each.place for each in tested.problems} == {
        "rules.list.fields.price.css",
        "rules.list.fields.price.as",
    }


def test_faults_of_other_rules_are_their_own(sample: SamplePage) -> None:
    """Also of one whose name begins the same."""
    active = ACTIVE | {"listing": {"type": "x"}, "other": 7}
    tested = try_rule(active=active, name="list", definition=RULE, pages=[sample])
    assert not tested.problems
    assert len(tested.trials[0].after.records) == 2
    assert [each.rule for each in tested.trials[0].after.follow] == ["other"]


def test_a_new_rule_has_nothing_before_it(sample: SamplePage) -> None:
    tested = try_rule(active={}, name="list", definition=other(), pages=[page_of(sample)])
    # Its links lead to a rule that is not there.
    assert [each.place for each in tested.problems] == ["rules.list.follow[0].rule"]
    edited = {"fields": {"t": "h2"}}
    trial = try_rule(active={}, name="list", definition=edited, pages=[sample]).trials[0]
    assert (trial.before, trial.changed) == (None, True)
    with pytest.raises(BadTest):
        try_rule(active={}, name="list", definition=None, pages=[sample])


def test_a_person_does_not_wait_for_ever(sample: SamplePage) -> None:
    """After the first page there is only so much time."""
    ticks = iter(range(0, 1000, 20))
    tested = try_rule(
        active=ACTIVE, name="list", definition=None, pages=[sample] * 5, clock=lambda: next(ticks)
    )
    assert (len(tested.trials), tested.left) == (2, 3)


def test_rules_are_read_and_written_as_yaml() -> None:
    assert read_definition(write_definition(RULE)) == RULE
    assert read_definition('{"fields": {"a": "b"}}') == {"fields": {"a": "b"}}
    with pytest.raises(BadTest) as caught:
        read_definition("fields:\n  a: [")
    assert "line" in caught.value.text


def test_a_kept_page_holds_no_cookie(sample: SamplePage) -> None:
    stored = SamplePage.objects.get(pk=sample.pk)
    assert [name for name, _ in stored.headers] == ["Content-Type"]
    assert page_of(stored).body == shop("茶壶", "杯子").body


def test_keeping_and_deleting_are_recorded(project: Project) -> None:
    person = make_user(roles={})
    kept = keep_page(project=project, biz="news", rule="", page=shop("a"), actor=person)
    assert kept.created_by == person.get_username()
    drop_page(sample=kept, actor=person)
    actions = AuditRecord.objects.filter(actor=person).values_list("action", flat=True)
    assert sorted(actions) == ["requeststore.add_samplepage", "requeststore.delete_samplepage"]


def test_kept_pages_have_limits(
    project: Project, sample: SamplePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(page: ResponsePage) -> SamplePage:
        return keep_page(project=project, biz="news", rule="", page=page, actor=None)

    with pytest.raises(BadSample):
        keep(ResponsePage(url="https://a.cn/", body=b"x" * (MAX_BODY_BYTES + 1)))
    with pytest.raises(BadSample):
        keep(ResponsePage(url="file:///etc/passwd", body=b"x"))
    monkeypatch.setattr(sample_pages, "MAX_SAMPLES", 1)
    with pytest.raises(TooManySamples):
        keep(shop("a"))


class _Shop(BaseHTTPRequestHandler):
    """Answers with a shop, and tells what it was asked with."""

    def do_GET(self) -> None:
        page = shop(self.headers.get("X-Who", "nobody"))
        self.send_response(200)
        for name, value in page.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        self.wfile.write(page.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        """Nothing."""


@pytest.fixture
def shop_url() -> Iterator[str]:
    """Of a shop on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Shop)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_page_is_downloaded_as_the_biz_would(project: Project, shop_url: str) -> None:
    project.allowed_networks = ["127.0.0.0/8"]
    biz = Biz(fetch=Fetch(headers={"X-Who": "me"}))
    page = fetch_page(project=project, biz=biz, url=shop_url)
    assert page.status == 200
    assert b"<h2>me</h2>" in page.body


def test_addresses_beyond_the_networks_of_the_project_are_refused(
    project: Project, shop_url: str
) -> None:
    with pytest.raises(NotFetched) as caught:
        fetch_page(project=project, biz=Biz(), url=shop_url)
    assert "127.0.0.1" in caught.value.text
    for url in ("file:///etc/passwd", "ftp://a.cn/", "javascript:1", "x"):
        with pytest.raises(BadSample):
            fetch_page(project=project, biz=Biz(), url=url)


def test_a_version_with_a_bad_rule_is_refused_with_its_place() -> None:
    """The configuration center asks before anything can run."""
    data = {"bizzes": {"news": {"rules": {"a": {"fields": {"b": {"css": "["}}}}}}}
    found = [(each.place, each.code) for each in BizKind().check(data)]
    assert ("bizzes.news.rules.a.fields.b.css", "bad_css") in found
    assert not list(BizKind().check({"bizzes": {"news": BIZ}}))
