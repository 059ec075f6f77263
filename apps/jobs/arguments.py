"""Spider arguments: parsing and validation of a JSON object that every database can store."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

from django.core.exceptions import ValidationError
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

MAX_BYTES: Final = 64 * 1024
MAX_DEPTH: Final = 20

# Messages of the standard library's parser, translated.
_PROBLEMS: Final[dict[str, Promise]] = {
    "Expecting value": _("a value is missing here"),
    "Expecting ',' delimiter": _("a comma is missing here"),
    "Expecting ':' delimiter": _("a colon is missing here"),
    "Expecting property name enclosed in double quotes": _(
        "a name in double quotes is missing here"
    ),
    "Illegal trailing comma before end of object": _("this comma is superfluous"),
    "Illegal trailing comma before end of array": _("this comma is superfluous"),
    "Unterminated string starting at": _("the string that starts here has no end"),
    "Invalid control character at": _("a line break or control character inside a string"),
    "Invalid \\escape": _("no such escape in JSON"),
    "Invalid \\uXXXX escape": _("\\u needs four hexadecimal digits"),
    "Extra data": _("there is text after the end of the object"),
}


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse a typed JSON object; an empty text is an empty object.

    Raises:
        ValidationError: no JSON object; the message names line and column.
    """
    return check_arguments(parse_json(text)) if text.strip() else {}


def parse_json(text: str, *, limit: int = MAX_BYTES) -> Any:
    """Parse a typed JSON value of at most ``limit`` characters.

    Raises:
        ValidationError: no JSON, or too long; the message names line and column.
    """
    _check_size(text, limit)
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValidationError(
            _("Line %(line)d, column %(column)d: %(problem)s."),
            code="invalid",
            params={
                "line": error.lineno,
                "column": error.colno,
                "problem": _PROBLEMS.get(error.msg.split(": ")[0], error.msg),
            },
        ) from error
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        # Python's own limit: a longer integer could not be printed or parsed again.
        raise ValidationError(_("A number has too many digits.")) from error


def check_arguments(value: object) -> dict[str, Any]:
    """Return the value if it is an object that every database can store.

    Raises:
        ValidationError: the message names the path to the invalid value.
    """
    if not isinstance(value, dict):
        raise ValidationError(_('Enter a JSON object such as {"start": "https://…"}.'))
    _check(value, "", 1)
    _check_size(json.dumps(value))
    return value


def _check(value: object, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _too_deep()
    if isinstance(value, dict):
        for name, item in value.items():
            _check_text(str(name), path)
            _check(item, f"{path}.{name}" if path else str(name), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValidationError(
            _("%(path)s: the number is too large for JSON."), params={"path": path[:200]}
        )


def _check_text(text: str, path: str) -> None:
    # PostgreSQL rejects NUL characters and lone surrogates.
    if "\x00" in text or not is_unicode(text):
        raise ValidationError(
            _("%(path)s: a character that cannot be stored (\\u0000 or half of a pair)."),
            params={"path": path[:200].encode("utf-8", "replace").decode() or "?"},
        )


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode the text: a lone surrogate cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_size(text: str, limit: int = MAX_BYTES) -> None:
    if len(text) > limit:
        raise ValidationError(
            _("Longer than %(limit)d characters; give the spider a file or an address instead."),
            params={"limit": limit},
        )


def _too_deep() -> ValidationError:
    return ValidationError(
        _("Nested more than %(limit)d levels deep."), params={"limit": MAX_DEPTH}
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValidationError(_("%(name)s is not a JSON value."), params={"name": name})
