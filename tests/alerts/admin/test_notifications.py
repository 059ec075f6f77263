"""The overview and the job's page: is anybody notified, and how one becomes a recipient."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings as installed
from playwright.sync_api import Page, expect

from apps.access.models import User
from apps.access.states import Role
from apps.alerts.models import Channel, RunSubscription
from tests.access.factories import enter, make_project, make_superuser, make_user
from tests.alerts.factories import make_channel
from tests.jobs.factories import make_job

pytestmark = pytest.mark.covers("UX.6")
NOBODY = "Nobody is notified when a run fails"


@pytest.mark.django_db
def test_the_overview_says_that_nobody_is_notified() -> None:
    project = make_project(name="shop")
    editor = make_user(roles={project: Role.EDITOR})
    viewer = make_user(roles={project: Role.VIEWER})
    assert NOBODY not in enter(editor).get("/admin/").content.decode(), "there is no job yet"
    job = make_job(project=project)
    page = enter(editor).get("/admin/").content.decode()
    assert NOBODY in page
    assert "/admin/alerts/channel/add/" in page
    page = enter(viewer).get("/admin/").content.decode()
    assert "/admin/alerts/channel/add/" not in page
    RunSubscription.objects.create(project=project, job=job, channel=make_channel(project=project))
    assert NOBODY not in enter(editor).get("/admin/").content.decode()


@pytest.mark.django_db
def test_a_viewer_switches_own_mails_and_an_editor_recipients() -> None:
    job = make_job()
    viewer = make_user(roles={job.project: Role.VIEWER}, email="ann@example.com")
    client, page = enter(viewer), f"/jobs/{job.pk}/alerts"
    assert "Nobody is notified when this job fails" in client.get(page).content.decode()
    address = f"/jobs/{job.pk}"
    answer = client.post(f"{address}/notify-me", {"when": "failure"}, follow=True)
    assert "You are notified at ann@example.com" in answer.content.decode()
    channel = make_channel(project=job.project)
    assert client.post(f"{address}/subscribe", {"channel": channel.pk}).status_code == 403
    mine = RunSubscription.objects.get()
    assert client.post(f"/subscriptions/{mine.pk}/end").status_code == 403
    editor = enter(make_user(roles={job.project: Role.EDITOR}))
    editor.post(f"{address}/subscribe", {"channel": channel.pk, "when": "end"})
    assert RunSubscription.objects.get(channel=channel).every_end
    assert f"@{viewer.username}" in editor.get(page).content.decode()
    assert editor.post(f"/subscriptions/{mine.pk}/end").status_code == 302
    client.post(f"{address}/notify-me", {"when": ""})
    assert list(RunSubscription.objects.all()) == [RunSubscription.objects.get(channel=channel)]
    stranger = enter(make_user())
    assert stranger.post(f"{address}/notify-me", {"when": "end"}).status_code == 404
    assert not Channel.objects.filter(person=None).exclude(pk=channel.pk).exists()


@pytest.mark.django_db
def test_the_channels_of_people_are_in_no_list() -> None:
    user, job = make_superuser(email="root@example.com"), make_job()
    client = enter(user)
    client.post(f"/jobs/{job.pk}/notify-me", {"when": "failure"})
    pk = Channel.objects.get().pk
    assert f"/{pk}/change/" not in client.get("/admin/alerts/channel/").content.decode()
    assert client.get("/api/v1/channels").json()["results"] == []


@pytest.mark.django_db
def test_a_rule_that_is_no_rule_is_not_found() -> None:
    answer = enter(make_superuser()).get("/admin/alerts/rulemute/new", follow=True)
    assert answer.status_code == 404
    assert "muted rule" not in answer.content.decode()


class Clicks:
    """A page that counts clicks."""

    def __init__(self, page: Page) -> None:
        self.page, self.count = page, 0

    def on(self, role: Any, name: str, **more: Any) -> None:
        self.page.get_by_role(role, name=name, **more).first.click()
        self.count += 1


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_two_ways_to_be_notified_take_four_clicks(live_server: Any) -> None:
    from tests.routing.test_explain_in_browser import browsing, fits

    project = make_project(name="Shop")
    job = make_job(project=project, name="books")
    editor = make_user(roles={project: Role.EDITOR}, email="ann@example.com")
    session = enter(editor).cookies[installed.SESSION_COOKIE_NAME]
    with browsing(live_server.url, session, "light", 1280) as page:
        page.goto("/admin/")
        by_slack = Clicks(page)
        by_slack.on("link", "Set up notifications")
        by_slack.on("link", "Slack", exact=False)
        page.get_by_label("URL").fill("https://hooks.slack.com/services/T000/B000/t0ken")
        assert fits(page)
        by_slack.on("button", "Save", exact=True)
        expect(page.get_by_text("slack").first).to_be_visible()
        row = RunSubscription.objects.get(channel__name="slack")
        assert (row.project, row.job, row.every_end) == (project, None, False)
        assert by_slack.count <= 4

        page.goto("/admin/")
        expect(page.get_by_text(NOBODY)).to_have_count(0)
        by_mail = Clicks(page)
        by_mail.on("link", "Jobs")
        by_mail.on("link", "books")
        page.locator(f"a[href='/jobs/{job.pk}/alerts']").first.click()
        by_mail.count += 1
        by_mail.on("button", "On failure")
        expect(page.get_by_text("You are notified at ann@example.com")).to_be_visible()
        assert RunSubscription.objects.filter(channel__person=editor, job=job).exists()
        assert by_mail.count <= 4
    assert User.objects.filter(pk=editor.pk, email="ann@example.com").exists()
