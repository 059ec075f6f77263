"""Converter ``common.ParseTime``: convert times in various formats to one format in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final, Literal
from zoneinfo import ZoneInfo

import msgspec

from apps.routing.engine.converters.base import BuiltInConverter, ConvertError
from apps.routing.engine.items import Item

_MOST_CHARACTERS: Final = 100
# Unix time of the year 5138. Larger numbers are read as milliseconds.
_MOST_SECONDS: Final = 100_000_000_000
# ``strptime`` raises ValueError for an invalid format and for a text that does not match it;
# only the message distinguishes them.
_WRONG_FORMAT: Final = re.compile("bad directive|stray %|is a duplicate|redefinition")
# Values that spiders write for "no time".
_NOTHING: Final = frozenset({None, ""})


class ParseTime(BuiltInConverter, frozen=True, kw_only=True):
    """Convert the values of ``keys: [...]`` to times in UTC.

    - ``formats``: ``strptime`` formats, tried in order. Without any, the text must be ISO 8601
      (``2021-10-22 15:12:02.145``).
    - ``zone``: time zone of texts that do not name one; UTC by default.
    - ``to``: output format: ``iso`` (``2021-10-22T07:12:02+00:00``), ``seconds`` or
      ``milliseconds`` since the epoch.

    Numbers are read as seconds since the epoch, or as milliseconds if above 100,000,000,000. Null
    and empty strings are kept. Any other value that is not a time rejects the item, or is kept
    with ``wrong: leave``.
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
        parsed = self._read(value.strip())
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=ZoneInfo(self.zone))
        return parsed.astimezone(UTC)

    def _read(self, text: str) -> datetime:
        if not self.formats:
            return datetime.fromisoformat(text)
        for form in self.formats:
            try:
                # The caller adds the time zone if the format has none.
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
