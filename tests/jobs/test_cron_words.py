"""Cron expressions in words."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError
from django.utils import translation

from apps.jobs.engine.cron import parse_cron
from apps.jobs.engine.cron_words import PRESETS, cron_words


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("", ""),
        ("0 6 * * *", "Every day at 06:00"),
        ("30 6,18 * * *", "Every day at 06:30, 18:30"),
        ("0 6 * * 1-5", "Monday to Friday at 06:00"),
        ("0 6 * * 0,6", "Every Saturday, Sunday at 06:00"),
        ("0 6 1 * *", "On day 1 of the month at 06:00"),
        ("0 6 1 * 1", "Every Monday, and on day 1 of the month at 06:00"),
        ("0 6 */2 * 1", "Every Monday if it is on day 1, 3, 5, 7, 9, 11, … of the month at 06:00"),
        ("* * * * *", "Every minute"),
        ("*/15 * * * *", "Every 15 minutes"),
        ("5 * * * *", "Every hour at minute 5"),
        ("5 */3 * * *", "Every 3 hours at minute 5"),
        ("0,30 8-18 * * *", "Every day at minute 0, 30 of the hours 8–18"),
        ("0 6 * 1,7 *", "Every day at 06:00, in January, July"),
    ],
)
@pytest.mark.covers("UX.3")
def test_an_expression_in_words(cron: str, words: str) -> None:
    assert cron_words(cron) == words


def test_an_expression_that_is_none() -> None:
    with pytest.raises(ValidationError, match="minute"):
        cron_words("77 * * * *")


def test_presets_are_expressions_and_read_well_in_chinese() -> None:
    for _title, cron in PRESETS:
        parse_cron(cron)
    with translation.override("zh-hans"):
        assert cron_words("0 6 * * 1-5") == "周一至周五 06:00"
        assert cron_words("*/15 * * * *") == "每 15 分钟"
