"""``common.ParseTime``: times of many shapes become one."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final, Literal
from zoneinfo import ZoneInfo

import msgspec

from apps.routing.engine.converters.base import ConvertError, Own
from apps.routing.engine.items import Item

_MOST_CHARACTERS: Final = 100
# Seconds of the year 5138; what is larger counts milliseconds.
_MOST_SECONDS: Final = 100_000_000_000
# Python names what is wrong with a format in the same exception as what does not fit it.
_WRONG_FORMAT: Final = re.compile("bad directive|stray %|is a duplicate|redefinition")
# Each has been used as "nothing" by some spider.
_NOTHING: Final = frozenset({None, ""})


class ParseTime(Own, frozen=True, kw_only=True):
    """``keys: [...]`` become times in UTC.

    ``formats``: those of ``strptime``, tried in order; with none, ISO 8601 in all its forms
    (``2021-10-22 15:12:02.145``). ``zone`` is that of texts without one. A number is seconds, or
    milliseconds when it is too large for seconds. ``to``: ``iso`` (``2021-10-22T07:12:02+00:00``),
    ``seconds`` or ``milliseconds``. Nothing (null, an empty text) stays; what is no time refuses
    the item, or stays with ``wrong: leave``.
    """

    adds: ClassVar[bool] = False

    keys: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    formats: tuple[str, ...] = ()
    zone: str = "UTC"
    to: Literal["iso", "seconds", "milliseconds"] = "iso"
    wrong: Literal["refuse", "leave"] = "refuse"

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.zone)
        except (ValueError, OSError, KeyError):
            raise ValueError(f"there is no time zone {self.zone!r}") from None
        for form in self.formats:
            _check_format(form)

    def convert(self, item: Item) -> Item:
        """The item with its times."""
        for key in self.keys:
            value = item.get(key)
            if isinstance(value, str | None) and value in _NOTHING:
                continue
            try:
                item[key] = self._written(self._time(value))
            except (ValueError, OverflowError, OSError):
                if self.wrong == "refuse":
                    shown = repr(value)[:60]
                    raise ConvertError("no_time", f"{key} holds no time: {shown}") from None
        return item

    def _time(self, value: Any) -> datetime:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1000 if abs(value) > _MOST_SECONDS else value
            return datetime.fromtimestamp(seconds, UTC)
        if not isinstance(value, str) or len(value) > _MOST_CHARACTERS:
            raise ValueError
        found = self._read(value.strip())
        if found.tzinfo is None:
            found = found.replace(tzinfo=ZoneInfo(self.zone))
        return found.astimezone(UTC)

    def _read(self, text: str) -> datetime:
        if not self.formats:
            return datetime.fromisoformat(text)
        for form in self.formats:
            try:
                # The zone, where the format has none, is put in by the caller.
                return datetime.strptime(text, form)  # noqa: DTZ007
            except ValueError:
                continue
        raise ValueError

    def _written(self, moment: datetime) -> str | float | int:
        if self.to == "iso":
            whole = moment.microsecond == 0
            return moment.isoformat(timespec="seconds" if whole else "milliseconds")
        if self.to == "seconds":
            seconds = moment.timestamp()
            return int(seconds) if seconds.is_integer() else seconds
        return round(moment.timestamp() * 1000)


def _check_format(form: str) -> None:
    try:
        datetime.strptime("", form)  # noqa: DTZ007
    except (ValueError, re.error) as error:
        if _WRONG_FORMAT.search(str(error)):
            raise ValueError(f"the format {form!r} is wrong: {error}") from None
    if "%" not in form:
        raise ValueError(f"the format {form!r} has no directive such as %Y")
