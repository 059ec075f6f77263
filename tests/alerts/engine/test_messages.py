"""Messages shortened to a channel's limit keep the link to the page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.alerts.engine.messages import Message
from tests.alerts.factories import NOW

LINK = "https://yard.example.com/admin/alerts/incident/7/change/"


def message(title: str = "[critical] it is so", **fields: object) -> Message:
    values: dict[str, object] = {
        "id": "notice_1",
        "title": title,
        "lines": ("Where: shop", "Since: now"),
        "at": NOW,
        "event": "incident.opened",
        "links": (("Incident", LINK),),
        "place": "shop, 03-01 12:00",
    }
    return Message(**(values | fields))  # type: ignore[arg-type]


def test_a_text_message_says_what_where_since_when_and_where_to_look() -> None:
    assert message().short(200) == f"[critical] it is so · shop, 03-01 12:00 · {LINK}"
    assert message("x" * 300).short(200).endswith(f"x… · shop, 03-01 12:00 · {LINK}")
    assert message("x" * 300).short(60).endswith("x… · shop, 03-01 12:00")
    assert message("x" * 300).short(20) == "x" * 19 + "…"


@pytest.mark.slow("5 s")
@given(st.text(max_size=400), st.text(max_size=100), st.integers(20, 1000))
def test_it_is_never_longer_than_the_gateway_takes(title: str, where: str, most: int) -> None:
    assert len(message(title, place=where).short(most)) <= most


@given(st.lists(st.text(max_size=300), max_size=30), st.integers(200, 4000))
def test_a_long_text_keeps_its_links(lines: list[str], most: int) -> None:
    told = message(lines=tuple(lines))
    shown = told.within(most)
    assert len(shown.encode()) <= most
    assert shown.endswith(f"\n\nIncident: {LINK}")
    if len(told.text.encode()) <= most:
        assert shown == told.text
