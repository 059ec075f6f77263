"""Forecasts as text."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.requeststore.engine.forecast import BacklogMeasurements, Forecast, Lateness, Outlook

_DAY = 86400.0
# Longer forecasts are meaningless.
_FAR = 365 * _DAY


def sentence(forecast: Forecast, facts: BacklogMeasurements, *, now: datetime) -> str:
    """Return ``done in 3 h 20 min``, ``never at this rate: 40/s created, 25/s processed``, ...

    Adds what will be late and how many more fetchers would be in time.
    """
    parts = [_outlook(forecast, facts)]
    if late := _lateness(forecast, facts, now):
        parts.append(late)
    more = forecast.needed - facts.running
    wanting = forecast.lateness or forecast.outlook is Outlook.NEVER
    # Without a measured capacity, the effect of more fetchers is unknown.
    if more > 0 and wanting and forecast.capacity:
        parts.append(
            ngettext(
                "%(count)d more fetcher needed to finish in time",
                "%(count)d more fetchers needed to finish in time",
                more,
            )
            % {"count": more}
        )
    return "; ".join(parts)


def duration(seconds: float) -> str:
    """Return ``50 s``, ``12 min``, ``3 h 20 min``, ``4 d 6 h``: at most two units."""
    whole = max(0, round(seconds))
    if whole < 60:
        return _("%(seconds)d s") % {"seconds": whole}
    minutes = round(whole / 60)
    if minutes < 60:
        return _("%(minutes)d min") % {"minutes": minutes}
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        if not minutes:
            return _("%(hours)d h") % {"hours": hours}
        return _("%(hours)d h %(minutes)d min") % {"hours": hours, "minutes": minutes}
    days, hours = divmod(round(whole / 3600), 24)
    if not hours:
        return _("%(days)d d") % {"days": days}
    return _("%(days)d d %(hours)d h") % {"days": days, "hours": hours}


def per_second(rate: float | None) -> str:
    """Return ``40/s``, ``2.5/s``, ``0.02/s``; a dash for None."""
    if rate is None:
        return "–"
    if rate >= 9.95:
        text = f"{rate:,.0f}"
    elif rate >= 0.095 or not rate:
        text = f"{rate:.1f}".removesuffix(".0")
    else:
        text = f"{rate:.2g}"
    return _("%(rate)s/s") % {"rate": text}


def _outlook(forecast: Forecast, facts: BacklogMeasurements) -> str:
    pace = {"created": per_second(facts.created), "processed": per_second(facts.processed)}
    match forecast.outlook:
        case Outlook.EMPTY:
            return _("no backlog")
        case Outlook.STALE:
            return _("unknown: the store has not reported for %(time)s") % {
                "time": duration(facts.report_age)
            }
        case Outlook.UNKNOWN:
            return _("unknown: not enough data yet")
        case Outlook.KEEPS_PACE:
            return _("keeping up: %(created)s created, %(processed)s processed") % pace
        case Outlook.STANDS:
            if not facts.running:
                return _("never at this rate: no fetcher is running")
            return _("never at this rate: nothing is processed")
        case Outlook.NEVER:
            return _("never at this rate: %(created)s created, %(processed)s processed") % pace
        case Outlook.DONE:
            seconds = forecast.eta_seconds or 0.0
            if seconds > _FAR:
                return _("done in more than a year")
            return _("done in %(time)s") % {"time": duration(seconds)}


def _lateness(forecast: Forecast, facts: BacklogMeasurements, now: datetime) -> str:
    at = ""
    if forecast.deadline_seconds is not None and abs(forecast.deadline_seconds) < _FAR:
        at = _moment(now + timedelta(seconds=forecast.deadline_seconds), now)
    match forecast.lateness:
        case Lateness.NONE:
            return ""
        case Lateness.OLDEST:
            return _("the oldest request missed its deadline at %(at)s") % {"at": at}
        case Lateness.BACKLOG:
            return _("will miss the deadline at %(at)s") % {"at": at}
        case Lateness.NEW:
            times = {"planned": duration(facts.planned_seconds)}
            if forecast.wait_seconds is None or forecast.wait_seconds > _FAR:
                return _("new requests will take longer than the planned %(planned)s") % times
            times["wait"] = duration(forecast.wait_seconds)
            return _("new requests will take %(wait)s instead of the planned %(planned)s") % times


def _moment(at: datetime, now: datetime) -> str:
    """Return ``14:05``, with the date unless it is today."""
    local = timezone.localtime(at)
    clock = f"{local:%H:%M}"
    if local.date() == timezone.localtime(now).date():
        return clock
    return f"{date_format(local, 'SHORT_DATE_FORMAT')} {clock}"
