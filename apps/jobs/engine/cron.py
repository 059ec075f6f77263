"""Cron expressions: parsing and times of firing.

Five fields: minute, hour, day of the month, month, weekday. Each is a list of ``*``, numbers,
ranges and steps; months and weekdays also have their English names. As in Debian's cron, a day
matches when both day fields match, or, where neither begins with ``*``, when one of them does.

Clock changes follow Debian's cron too. An expression whose minute and hour are both explicit
follows the wall clock: a time that is skipped fires right after the change, and a time that
occurs twice fires once. An expression with ``*`` or ``*/n`` as minute or hour follows elapsed
time: it fires whenever the wall clock matches.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import islice
from typing import Final

from django.core.exceptions import ValidationError
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

MAX_LENGTH: Final = 100
# An expression that does not fire within this number of days never fires: 29 February recurs after
# at most eight years, on a given weekday after at most 40.
LONGEST_WAIT_DAYS: Final = 366 * 41
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)

MONTH_NAMES: Final = (
    "JAN",
    "FEB",
    "MAR",
    "APR",
    "MAY",
    "JUN",
    "JUL",
    "AUG",
    "SEP",
    "OCT",
    "NOV",
    "DEC",
)
DAY_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    label: Promise | str
    first: int
    last: int
    names: Sequence[str] = ()


FIELDS: Final = (
    _Field("minute", gettext_lazy("minute"), 0, 59),
    _Field("hour", gettext_lazy("hour"), 0, 23),
    _Field("day", gettext_lazy("day of the month"), 1, 31),
    _Field("month", gettext_lazy("month"), 1, 12, MONTH_NAMES),
    # Both 0 and 7 are Sunday.
    _Field("weekday", gettext_lazy("weekday"), 0, 7, DAY_NAMES),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """Parsed cron expression. ``weekdays``: Sunday is 0. ``months``: January is 1."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both_days: bool
    by_wall_clock: bool

    def fits_day(self, day: date) -> bool:
        """Return whether the expression fires on this day."""
        if day.month not in self.months:
            return False
        by_number = day.day in self.days
        by_weekday = day.isoweekday() % 7 in self.weekdays
        return by_number and by_weekday if self.both_days else by_number or by_weekday


class _CronError(Exception):
    """A field of a cron expression is invalid; the text is the reason."""


def validate_cron(text: str) -> None:
    """Accept a cron expression, or the empty text, which never fires.

    Raises:
        ValidationError: names the field, the value and the problem.
    """
    if text:
        parse_cron(text)


def validate_time_zone(name: str) -> None:
    """Accept a time zone of the IANA database. Raises ``ValidationError``."""
    if name not in _zones():
        raise ValidationError(
            _("%(name)r is not a time zone; use one such as Asia/Shanghai.") % {"name": name[:100]},
            code="time_zone",
        )


@cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def zone_of(name: str) -> zoneinfo.ZoneInfo:
    """Return the time zone of this name. Raises ``ZoneInfoNotFoundError``, ``ValueError``."""
    return zoneinfo.ZoneInfo(name)


def parse_cron(text: str) -> Cron:
    """Parse a cron expression. Raises ``ValidationError``."""
    try:
        cron = _parse(text)
    except _CronError as wrong:
        raise ValidationError(
            _("The cron expression is not valid: %(why)s") % {"why": wrong}, code="cron"
        ) from wrong
    if not _can_fit(cron):
        raise ValidationError(
            _("The cron expression is not valid: %(why)s")
            % {"why": _("none of its months has such a day, so it never fires.")},
            code="cron",
        )
    return cron


def next_times(cron: Cron, zone: str, after: datetime, count: int) -> list[datetime]:
    """Return the next ``count`` times after ``after``, in UTC.

    The list is shorter only if the expression never fires again.
    """
    return list(islice(_times(cron, zone_of(zone), after.astimezone(UTC)), count))


def times_between(
    cron: Cron, zone: str, after: datetime, through: datetime, limit: int
) -> list[datetime]:
    """Return the times in (after, through], in UTC, oldest first, at most ``limit``."""
    times: list[datetime] = []
    through = through.astimezone(UTC)
    for moment in _times(cron, zone_of(zone), after.astimezone(UTC)):
        if moment > through or len(times) >= limit:
            break
        times.append(moment)
    return times


# --- parsing --------------------------------------------------------------------------------------


def _parse(text: str) -> Cron:
    if len(text) > MAX_LENGTH:
        raise _CronError(_("it is longer than %(limit)d characters.") % {"limit": MAX_LENGTH})
    parts = text.upper().split()
    if len(parts) != len(FIELDS):
        message = _("it must have five fields (minute hour day month weekday), not %(count)d.")
        raise _CronError(message % {"count": len(parts)})
    minutes, hours, days, months, weekdays = (
        _values(field, part) for field, part in zip(FIELDS, parts, strict=True)
    )
    return Cron(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(weekday % 7 for weekday in weekdays),
        both_days=parts[2].startswith("*") or parts[4].startswith("*"),
        by_wall_clock=not parts[0].startswith("*") and not parts[1].startswith("*"),
    )


def _values(field: _Field, part: str) -> set[int]:
    values: set[int] = set()
    for term in part.split(","):
        values |= _term(field, term)
    return values


def _term(field: _Field, term: str) -> set[int]:
    span, slash, step_text = term.partition("/")
    step = _step(field, term, step_text) if slash else 1
    if span == "*":
        # Weekdays 0 and 7 are both Sunday: steps of seven would fire twice a week.
        return set(range(field.first, (6 if field.name == "weekday" else field.last) + 1, step))
    first_text, dash, last_text = span.partition("-")
    first = _number(field, term, first_text)
    open_end = field.last if slash else first
    last = _number(field, term, last_text) if dash else open_end
    if last < first:
        raise _wrong(field, term, _("the range ends before it begins"))
    return set(range(first, last + 1, step))


def _number(field: _Field, term: str, text: str) -> int:
    if text in field.names:
        return field.names.index(text) + (1 if field.name == "month" else 0)
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise _wrong(field, term, _("neither *, a number, a range nor a name of this field"))
    number = int(text)
    if not field.first <= number <= field.last:
        why = _("not between %(first)d and %(last)d") % {"first": field.first, "last": field.last}
        raise _wrong(field, term, why)
    return number


def _step(field: _Field, term: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise _wrong(field, term, _("a step is a number"))
    step = int(text)
    if not 1 <= step <= field.last:
        raise _wrong(field, term, _("a step is between 1 and %(last)d here") % {"last": field.last})
    return step


def _wrong(field: _Field, term: str, why: str) -> _CronError:
    text = _("%(field)s “%(value)s”: %(why)s.")
    return _CronError(text % {"field": field.label, "value": term[:30], "why": why})


def _can_fit(cron: Cron) -> bool:
    # 2024 was a leap year.
    longest = {
        month: 29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31 for month in cron.months
    }
    possible = any(day <= length for day in cron.days for length in longest.values())
    return possible or not cron.both_days


# --- times ----------------------------------------------------------------------------------------


def _times(cron: Cron, zone: zoneinfo.ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield every time after ``after`` in UTC, strictly ascending."""
    # Some zones have set their clocks back across midnight: the previous day may not be over.
    day = after.astimezone(zone).date() - _DAY
    pending: set[datetime] = set()
    quiet = 0
    while quiet <= LONGEST_WAIT_DAYS and day.year < 9990:
        quiet += 1
        if cron.fits_day(day):
            pending.update(_times_of_day(cron, zone, day))
        day += _DAY
        if pending:
            quiet = 0
            midnight = datetime.combine(day, time(), tzinfo=zone).astimezone(UTC)
            ready = [moment for moment in pending if moment < midnight]
            pending.difference_update(ready)
            yield from sorted(moment for moment in ready if moment > after)


def _times_of_day(cron: Cron, zone: zoneinfo.ZoneInfo, day: date) -> list[datetime]:
    offset = _steady_offset(zone, day)
    walls = [
        datetime.combine(day, time(hour, minute)) for hour in cron.hours for minute in cron.minutes
    ]
    if offset is not None:
        return [(wall - offset).replace(tzinfo=UTC) for wall in walls]
    times: set[datetime] = set()
    for wall in walls:
        first = wall.replace(tzinfo=zone)
        if _is_real(first):
            times.add(first.astimezone(UTC))
            if not cron.by_wall_clock:
                times.add(first.replace(fold=1).astimezone(UTC))
        elif cron.by_wall_clock:
            times.add(_after_the_gap(first))
    return sorted(times)


def _steady_offset(zone: zoneinfo.ZoneInfo, day: date) -> timedelta | None:
    """Return the offset to UTC if it is constant during and around the day, else None."""
    around = [datetime.combine(day, time()) + hours for hours in _PROBES]
    offsets = {moment.replace(tzinfo=zone).utcoffset() for moment in around}
    return offsets.pop() if len(offsets) == 1 else None


_PROBES: Final = tuple(timedelta(hours=hours) for hours in (-3, 0, 6, 12, 18, 24, 27))


def _is_real(moment: datetime) -> bool:
    return moment.astimezone(UTC).astimezone(moment.tzinfo).replace(fold=0, tzinfo=None) == (
        moment.replace(fold=0, tzinfo=None)
    )


def _after_the_gap(moment: datetime) -> datetime:
    """Return the moment of the clock change that skips ``moment``."""
    while not _is_real(moment):
        moment += _MINUTE
    return moment.astimezone(UTC)
