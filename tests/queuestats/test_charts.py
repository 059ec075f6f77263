"""The chart component: what the tag writes, and what a browser makes of it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import axe_playwright_python.sync_playwright as axe
import pytest
from django.template import Context, Template
from django.utils import timezone, translation
from playwright.sync_api import expect

from apps.access.states import Role
from apps.queuestats.services import record_gauges, record_observed_seconds, store_samples
from tests.access.factories import enter, make_project, make_user
from tests.e2e.chromium import keep
from tests.routing.test_explain_in_browser import browsing, fits
from yardkit.protocol import SampleNote, Samples


def rendered(text: str, **context: Any) -> str:
    return Template("{% load queuestats_tags %}" + text).render(Context(context))


def test_the_tag_writes_what_the_script_reads() -> None:
    html = rendered(
        "{% chart title=title source='/x?a=1' unit='%' maximum=100 style='bars' %}", title='<"x">'
    )
    assert 'data-title="&lt;&quot;x&quot;&gt;"' in html
    assert 'data-source="/x?a=1"' in html
    assert 'data-max="100"' in html
    assert 'data-style="bars"' in html
    assert 'data-span="3600"' in html
    assert "data-refresh" not in html
    assert 'data-text-table="Show as table"' in html
    several = rendered("{% chart title='x' series=s timed=False %}", s=[{"source": "/a"}])
    assert 'data-spans="[]"' in several
    assert "data-series=" in several
    with pytest.raises(ValueError, match="a source or series"):
        rendered("{% chart title='x' %}")


def test_numbers_for_the_script_are_not_written_for_people() -> None:
    with translation.override("zh-hans"):
        html = rendered("{% chart title='x' source='/a' span=604800 maximum=1234.5 %}")
    assert 'data-span="604800"' in html
    assert 'data-max="1234.5"' in html


def _some_hours(project: int) -> None:
    """A gauge read every 5 s in the last minutes, with one gap, and rates of the last hours."""
    now = timezone.now()
    at = int(now.timestamp())
    for ago in range(5, 1500, 5):
        if not 600 < ago < 800:
            value = float(abs(ago - 750))
            record_gauges(
                {("queue.waiting", project, "news"): value}, now=now - timedelta(seconds=ago)
            )
    notes = [
        SampleNote(at - ago, 1, name, project, "news", factor * (1 + ago % 7))
        for ago in range(1, 900)
        for name, factor in (("requests.created", 3.0), ("requests.processed", 2.0))
    ]
    for seq in range(1, 1 + len(notes) // 600 + 1):
        part = notes[600 * (seq - 1) : 600 * seq]
        report = Samples(sender="w", boot="b", seq=seq, sent_at=now.timestamp(), samples=part)
        assert store_samples(messages=[report], now=now) == []
    record_observed_seconds(since=at - 900, until=at)


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_in_a_browser(live_server: Any, settings: Any, scheme: str, width: int) -> None:
    settings.ROOT_URLCONF = "tests.queuestats.chart_page"
    project = make_project()
    _some_hours(project.pk)
    cookies = enter(make_user(roles={project: Role.VIEWER})).cookies
    session = cookies[settings.SESSION_COOKIE_NAME]
    with browsing(live_server.url, session, scheme, width) as page:
        page.goto(f"/charts?project={project.pk}")
        waiting, rates, nothing = page.locator("[data-chart]").all()
        for each in (waiting, rates):
            expect(each.locator("canvas")).to_be_visible()
        expect(nothing.locator(".cy-chart-note")).to_have_text("No data in this period.")
        expect(rates.locator(".cy-chart-legend button")).to_have_count(2)
        label = waiting.locator(".cy-chart-plot").get_attribute("aria-label") or ""
        assert "highest 745" in label
        keep(page, f"charts-{width}")
        assert fits(page)
        found = axe.Axe().run(page, context="[data-chart]").response["violations"]
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        assert serious == [], json.dumps(serious, indent=1)

        # Charts of one group show the same span.
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        waiting.get_by_role("button", name="5 min").click()
        expect(rates.get_by_role("button", name="5 min")).to_have_attribute("aria-pressed", "true")
        waiting.get_by_role("button", name="6 h").press("Enter")
        expect(rates.get_by_role("button", name="6 h")).to_have_attribute("aria-pressed", "true")
        page.wait_for_timeout(300)
        assert any("seconds=300" in url for url in asked)
        assert any("seconds=21600" in url for url in asked)

        # The same as a table, by keyboard.
        waiting.get_by_role("button", name="Show as table").press("Enter")
        expect(waiting.get_by_role("columnheader").nth(1)).to_have_text("Waiting")
        assert waiting.locator("tbody tr").count() > 1
        keep(page, f"charts-table-{width}")
        waiting.get_by_role("button", name="Show as chart").press("Enter")

        # One line less, and back.
        first = rates.locator(".cy-chart-legend button").first
        first.click()
        expect(first).to_have_attribute("aria-pressed", "false")

        # A part of the time stands still until somebody comes back to now.
        waiting.get_by_role("button", name="1 h").click()
        page.wait_for_timeout(300)
        box = waiting.locator(".u-over").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 40, steps=4)
        page.mouse.up()
        back = waiting.get_by_role("button", name="Back to now")
        expect(back).to_be_visible()
        keep(page, f"charts-zoomed-{width}")
        back.click()
        expect(back).to_be_hidden()


# Keeps every text that a canvas draws, with its right edge and the width of the canvas.
TEXTS = """
window.drawn = [];
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
  const width = this.measureText(text).width;
  const right = x + { right: 0, end: 0, center: width / 2 }[this.textAlign] ?? width;
  window.drawn.push([text, this.getTransform().e + right, this.canvas.width]);
  return fill.call(this, text, x, y, ...rest);
};
"""


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_an_axis_of_counts_has_whole_numbers_and_no_label_is_cut(
    live_server: Any, settings: Any
) -> None:
    settings.ROOT_URLCONF = "tests.queuestats.chart_page"
    project, now = make_project(), timezone.now()
    for ago in range(5, 3600, 5):
        record_gauges(
            {("queue.waiting", project.pk, "news"): 1.0}, now=now - timedelta(seconds=ago)
        )
    cookies = enter(make_user(roles={project: Role.VIEWER})).cookies
    session = cookies[settings.SESSION_COOKIE_NAME]
    with browsing(live_server.url, session, "light", 1280) as page:
        page.add_init_script(TEXTS)
        page.goto(f"/charts?project={project.pk}")
        expect(page.locator("[data-chart] canvas").first).to_be_visible()
        page.wait_for_function("window.drawn.some(([text]) => text === '1')")
        drawn = page.evaluate("window.drawn")
    # Times have a colon, and labels of the chart of a rate its unit.
    counts = {text for text, _right, _width in drawn if ":" not in text and "/" not in text}
    assert counts >= {"0", "1"}
    assert not [text for text in counts if "." in text]
    assert [text for text, right, width in drawn if right > width] == []
