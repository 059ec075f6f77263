"""Strict parser and validator for JSON bodies of seed calls.

Rejected with the place of the error: duplicate keys, numbers that other programs cannot read, deep
nesting, lone surrogates, values of a wrong type.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from json import decoder, scanner
from typing import IO, Any, Final, NoReturn, TypeVar

import msgspec
from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.serializers import Serializer

from apps.access.api.parsers import BodyTooLarge
from apps.seeds.engine.limits import MAX_BODY_BYTES

MAX_DEPTH: Final = 64
# Integers beyond 64 bits are not portable.
_INTEGERS: Final = range(-(2**63), 2**64)
_DIGITS: Final = 20
# Matches string literals, terminated or not; possessive quantifiers ("++", "*+") prevent
# backtracking.
_MARKS: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_HALF: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_PART: Final = re.compile(r"\.([^.\[]+)|\[([0-9]+|\.\.\.)\]")
_T = TypeVar("_T")


class SeedsJSONParser(BaseParser):
    """JSON parser for UTF-8 bodies of at most ``MAX_BODY_BYTES``; rejects ambiguous JSON.

    Not a subclass of ``JSONParser``, for which the framework reads the body itself and limits it to
    ``DATA_UPLOAD_MAX_MEMORY_SIZE``.
    """

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the decoded body. Raises ``ParseError`` or ``BodyTooLarge``."""
        raw: bytes = stream.read(MAX_BODY_BYTES + 1)
        if len(raw) > MAX_BODY_BYTES:
            raise BodyTooLarge
        return read_json(raw) if raw.strip() else {}


def read_json(raw: bytes) -> Any:
    """Return the decoded JSON text. Raises ``ParseError`` with the position of the error."""
    try:
        text = raw.decode()
        # With fewer brackets than the limit, the nesting need not be counted.
        if text.count("[") + text.count("{") > MAX_DEPTH:
            _check_depth(text)
        value = _decoder.decode(text)
    except UnicodeDecodeError as error:
        raise _refused(_("not UTF-8 at byte %(place)d") % {"place": error.start + 1}) from None
    except _Twice as error:
        place = _place(text, _object_with(text, error.key))
        words = {"key": _short(error.key), "place": place}
        raise _refused(_("duplicate key %(key)s in the object at %(place)s") % words) from None
    except _BadNumber as error:
        words = {"number": _short(error.text), "place": _place(text, text.find(error.text))}
        raise _refused(_("%(place)s: the number %(number)s is out of range") % words) from None
    except _TooDeep as error:
        words = {"place": _place(text, error.offset), "most": str(MAX_DEPTH)}
        raise _refused(_("%(place)s: nested deeper than %(most)s levels") % words) from None
    except json.JSONDecodeError as error:
        words = {"what": error.msg, "place": _place(text, error.pos)}
        raise _refused(_("%(what)s at %(place)s") % words) from None
    half = _HALF.search(text) if "\\u" in text else None
    # Skip what only looks like a surrogate escape because its backslash is itself escaped.
    if half and not _writable(value):
        words = {"place": _place(text, half.start())}
        raise _refused(_("%(place)s: lone surrogate") % words)
    return value


def read_as(kind: type[_T], value: Any) -> _T:
    """Convert ``value`` to ``kind``. Raises ``ValidationError`` with the path of the error."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text, _at, path = str(error).partition(" - at `$")
        raise ValidationError({dotted(path.rstrip("`")): [text]}) from None


def checked(kind: type[Serializer[Any]], data: Any) -> dict[str, Any]:
    """Validate a small body against ``kind``, unknown names included. Raises
    ``ValidationError``.
    """
    body = kind(data=data)
    body.is_valid(raise_exception=True)
    if unknown := [str(name) for name in data if name not in body.fields]:
        raise ValidationError({name: [_("There is no such field.")] for name in unknown})
    return dict(body.validated_data)


def dotted(path: str) -> str:
    """Convert a path such as ``.seeds[3].data`` to ``seeds.3.data``, the form used in all
    errors.
    """
    names = [name or number for name, number in _PART.findall(path)]
    return ".".join(names) or "non_field_errors"


class _Twice(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class _BadNumber(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class _TooDeep(Exception):
    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def _refused(text: str) -> ParseError:
    return ParseError(_("Not valid JSON: %(error)s") % {"error": text})


def _check_depth(text: str) -> None:
    depth = 0
    for mark in _MARKS.finditer(text):
        first = mark[0][0]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _TooDeep(mark.start())
        elif first in "]}":
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for key, _value in pairs:
            if key in seen:
                raise _Twice(key)
            seen.add(key)
    return value


def _constant(text: str) -> NoReturn:
    raise _BadNumber(text)


def _integer(text: str) -> int:
    if len(text) > _DIGITS or int(text) not in _INTEGERS:
        raise _BadNumber(text)
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _BadNumber(text)
    return number


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_number
)


def _writable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _object_with(text: str, key: str) -> int:
    """Return the offset of the object that has ``key`` twice, by a second, slower pass."""
    start = -1

    def read(begin: tuple[str, int], *rest: Any) -> Any:
        nonlocal start
        try:
            return decoder.JSONObject(begin, *rest)  # type: ignore[attr-defined]
        except _Twice:
            if start < 0:
                start = begin[1] - 1
            raise

    reader = json.JSONDecoder(object_pairs_hook=_object)
    reader.parse_object = read  # type: ignore[attr-defined]
    reader.scan_once = scanner.py_make_scanner(reader)  # type: ignore[attr-defined]
    with suppress(_Twice, ValueError):
        reader.decode(text)
    return max(start, 0)


def _place(text: str, offset: int) -> str:
    offset = max(offset, 0)
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    return _("line %(line)d, character %(column)d") % {"line": line, "column": column}


def _short(text: str) -> str:
    return json.dumps(text if len(text) <= 50 else f"{text[:50]}…", ensure_ascii=True)
