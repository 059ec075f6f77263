"""Cron expressions in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from django.utils.dates import MONTHS, WEEKDAYS
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from apps.jobs.engine.cron import Cron, parse_cron

# Expressions that the page of a schedule offers, by title.
PRESETS: Final = (
    (gettext_lazy("Every hour"), "0 * * * *"),
    (gettext_lazy("Daily at 06:00"), "0 6 * * *"),
    (gettext_lazy("Weekdays at 06:00"), "0 6 * * 1-5"),
    (gettext_lazy("Mondays at 06:00"), "0 6 * * 1"),
    (gettext_lazy("Monthly on day 1 at 06:00"), "0 6 1 * *"),
)
_WORKDAYS: Final = frozenset(range(1, 6))
# More times of a day, or numbers in a list, are shortened.
_MOST: Final = 6


def cron_words(text: str) -> str:
    """Return a cron expression in words, such as "Every day at 06:00"; "" for the empty text.

    Raises ``ValidationError`` for an invalid expression.
    """
    if not text:
        return ""
    cron = parse_cron(text)
    times, is_interval = _times(cron)
    words = _("%(days)s %(times)s") % {"days": _days(cron), "times": times}
    if is_interval and len(cron.days) == 31 and len(cron.weekdays) == 7:
        words = _capital(times)
    if len(cron.months) < 12:
        months = _listed([str(MONTHS[month]) for month in sorted(cron.months)])
        words = _("%(words)s, in %(months)s") % {"words": words, "months": months}
    return words


def _days(cron: Cron) -> str:
    every_day, every_weekday = len(cron.days) == 31, len(cron.weekdays) == 7
    if every_day and every_weekday:
        return _("Every day")
    numbers = _("on day %(days)s of the month") % {
        "days": _listed([str(day) for day in sorted(cron.days)])
    }
    if cron.weekdays == _WORKDAYS:
        weekdays = _("Monday to Friday")
    else:
        names = [
            str(WEEKDAYS[(day - 1) % 7]) for day in sorted(cron.weekdays, key=lambda day: day or 7)
        ]
        weekdays = _("every %(days)s") % {"days": _listed(names)}
    if every_weekday:
        return _capital(numbers)
    if every_day:
        return _capital(weekdays)
    joined = (
        _("%(weekdays)s if it is %(numbers)s")
        if cron.both_days
        else _("%(weekdays)s, and %(numbers)s")
    )
    return _capital(joined % {"weekdays": weekdays, "numbers": numbers})


def _times(cron: Cron) -> tuple[str, bool]:
    """Return the times of a day in words, and whether they repeat over the whole day."""
    minutes, hours = cron.minutes, cron.hours
    if len(minutes) == 1 and len(hours) <= _MOST:
        times = [f"{hour:02}:{minutes[0]:02}" for hour in hours]
        return _("at %(times)s") % {"times": _listed(times)}, False
    step = _step(hours, 24)
    if len(hours) == 24:
        return _minutes(minutes), True
    if len(minutes) == 1 and step:
        text = _("every %(count)d hours at minute %(minute)d")
        return text % {"count": step, "minute": minutes[0]}, True
    text = _("at minute %(minutes)s of the hours %(hours)s")
    return text % {"minutes": _spans(minutes), "hours": _spans(hours)}, False


def _minutes(minutes: Sequence[int]) -> str:
    """Return the minutes of every hour in words."""
    if len(minutes) == 60:
        return _("every minute")
    if len(minutes) > 1 and (step := _step(minutes, 60)):
        text = ngettext("every %(count)d minute", "every %(count)d minutes", step)
        return text % {"count": step}
    return _("every hour at minute %(minutes)s") % {"minutes": _spans(minutes)}


def _step(numbers: Sequence[int], size: int) -> int:
    """Return n if the numbers are 0, n, 2n, ... up to ``size``, else 0."""
    step = size // len(numbers)
    return step if list(numbers) == list(range(0, size, step)) else 0


def _spans(numbers: Sequence[int]) -> str:
    """Return numbers with runs of them as spans: ``0-59``, ``8-18, 20``."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    texts = [f"{span[0]}–{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans]
    return _listed(texts)


def _listed(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:_MOST])
    return f"{shown}, …" if len(texts) > _MOST else shown


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
