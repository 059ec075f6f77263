"""Validators of downloader fields; messages name the error and its position."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import re2
from django.core.exceptions import ValidationError
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.jobs.arguments import is_unicode
from yardkit.names import CONTROL, is_token
from yardkit.nesting import check_json
from yardkit.protocol import CutRule

# Same limits as on agents.
MAX_RULES: Final = 50
MAX_PATTERN_CHARACTERS: Final = 1000
# Limit of the compiled size: the worst-case time of a search is this times the text's length.
MAX_PATTERN_SIZE: Final = 2000
MAX_OFFSET: Final = 10_000_000
MAX_EDGE_CHARACTERS: Final = 1000
MAX_COOKIES: Final = 100
MAX_COOKIE_CHARACTERS: Final = 4096
_SHOWN: Final = 60

_COOKIE_VALUE = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*|\"[^\"\x00-\x1f;\x7f]*\"")

# Messages of re2, translated.
_PROBLEMS: Final[dict[str, Promise]] = {
    "missing )": _("this parenthesis is never closed"),
    "unexpected )": _("this parenthesis was never opened"),
    "missing ]": _("this bracket is never closed"),
    "invalid perl operator": _("RE2 has no look-ahead, look-behind or other such groups"),
    "bad repetition operator": _("this cannot be repeated twice"),
    "no argument for repetition operator": _("there is nothing to repeat"),
    "invalid repetition size": _("repeated too often"),
    "invalid escape sequence": _("no such escape in RE2 (there are no back-references)"),
    "invalid character class": _("unknown character class"),
    "invalid character class range": _("the range ends before it begins"),
    "trailing \\": _("a backslash at the end escapes nothing"),
    "invalid named capture group": _("invalid group name"),
}
_NAMED_FIELDS: Final = {field.name for field in msgspec.structs.fields(CutRule)}


def validate_pattern(text: str) -> None:
    """Accept an RE2 expression; the message names the position of the error, counted from 1."""
    problem = pattern_problem(text)
    if problem is not None:
        raise ValidationError(problem, code="invalid_pattern")


def pattern_problem(text: str) -> str | None:
    """Return the error of an RE2 expression; None if agents accept the expression."""
    if len(text) > MAX_PATTERN_CHARACTERS:
        return gettext("Longer than %(limit)d characters.") % {"limit": MAX_PATTERN_CHARACTERS}
    options = re2.Options()
    # By default the library also writes errors to stderr.
    options.log_errors = False
    try:
        pattern = re2.compile(text, options)
    except UnicodeEncodeError as error:
        return _at(error.start, text, gettext("a character that cannot be stored"))
    except re2.error as error:
        message = error.args[0] if error.args else b""
        message = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        kind, _separator, part = message.partition(": ")
        return _at(_position(text, kind, part), text, _PROBLEMS.get(kind, kind))
    if pattern.programsize > MAX_PATTERN_SIZE:
        return gettext("It repeats too much; use smaller counts.")
    return None


def _at(position: int, text: str, problem: str | Promise) -> str:
    shown = text[position : position + 20]
    return gettext("At character %(position)d, “%(shown)s”: %(problem)s.") % {
        "position": position + 1,
        "shown": shown.encode("utf-8", "replace").decode(),
        "problem": problem,
    }


def _position(text: str, kind: str, part: str) -> int:
    if kind in ("missing )", "unexpected )"):
        # For this error re2 reports the whole expression.
        return _odd_parenthesis(text)
    if kind == "trailing \\":
        return len(text) - 1
    return max(0, text.find(part))


def _odd_parenthesis(text: str) -> int:
    """Return the position of the first unmatched parenthesis."""
    opened: list[int] = []
    in_class = escaped = False
    for index, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character == "(":
            opened.append(index)
        elif character == ")":
            if not opened:
                return index
            opened.pop()
    return opened[0] if opened else 0


def validate_encoding(text: str) -> None:
    """Accept the name of a character encoding."""
    try:
        # Also rejects codecs that are not text encodings, such as rot13.
        "a".encode(text)
    except (LookupError, UnicodeError, ValueError) as error:
        raise ValidationError(
            _("“%(name)s” is not a known encoding; use one such as utf-8, gb18030 or shift_jis."),
            params={"name": text[:_SHOWN]},
        ) from error


def validate_header_text(text: str) -> None:
    """Accept a valid HTTP header value."""
    if CONTROL.search(text) or text != text.strip():
        raise ValidationError(
            _("Line breaks, control characters and surrounding spaces are not allowed.")
        )
    try:
        text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise ValidationError(
            _("Character %(position)d cannot be sent in a header; use Latin letters."),
            params={"position": error.start + 1},
        ) from error


def validate_cut_rules(value: object) -> None:
    """Accept a list of cut rules that are valid on agents; the message names the invalid rule."""
    if not isinstance(value, list):
        raise ValidationError(
            _('Enter a JSON list of rules such as [{"start": "<main", "end": "</main>"}].')
        )
    if len(value) > MAX_RULES:
        raise ValidationError(
            _("%(count)d rules are given, at most %(limit)d are allowed."),
            params={"limit": MAX_RULES, "count": len(value)},
        )
    errors = []
    for number, rule in enumerate(value, 1):
        problem = _rule_problem(rule)
        if problem is not None:
            errors.append(
                ValidationError(
                    _("Rule %(number)d: %(problem)s"), params={"number": number, "problem": problem}
                )
            )
    if errors:
        raise ValidationError(errors)


def _rule_problem(rule: object) -> str | None:
    if not isinstance(rule, dict):
        return gettext('must be an object such as {"start": "<main", "end": "</main>"}.')
    unknown = sorted(set(rule) - _NAMED_FIELDS)
    if unknown:
        return gettext("unknown field “%(name)s”; the fields are %(known)s.") % {
            "name": str(unknown[0])[:_SHOWN].encode("utf-8", "replace").decode(),
            "known": ", ".join(sorted(_NAMED_FIELDS)),
        }
    try:
        read = msgspec.convert(rule, CutRule)
    except msgspec.ValidationError as error:
        problem, _separator, where = str(error).partition(" - at `$.")
        return f"{where.rstrip('`')}: {problem}." if where else f"{problem}."
    return _meaning_problem(read)


def _meaning_problem(rule: CutRule) -> str | None:
    if rule == CutRule():
        return gettext("it cuts nothing; give start, end or pattern.")
    if rule.pattern and (rule.start or rule.end):
        return gettext("give either a pattern, or start and end.")
    for name in ("start", "end"):
        text = getattr(rule, name)
        if len(text) > MAX_EDGE_CHARACTERS:
            return gettext("%(name)s is longer than %(limit)d characters.") % {
                "name": name,
                "limit": MAX_EDGE_CHARACTERS,
            }
        if "\x00" in text or not is_unicode(text):
            return gettext("%(name)s has a character that cannot be stored.") % {"name": name}
    for name in ("start_offset", "end_offset"):
        if abs(getattr(rule, name)) > MAX_OFFSET:
            return gettext("%(name)s must be between -%(limit)d and %(limit)d.") % {
                "name": name,
                "limit": MAX_OFFSET,
            }
    if "\x00" in rule.pattern:
        return gettext("%(name)s has a character that cannot be stored.") % {"name": "pattern"}
    problem = pattern_problem(rule.pattern)
    return None if problem is None else gettext("pattern: %(problem)s") % {"problem": problem}


def parse_cookies(text: str) -> dict[str, str]:
    """Parse cookies: ``name=value; name=value``, as in a Cookie header, or a JSON object.

    Raises ``ValidationError`` that names the cookie, never its value.
    """
    text = text.strip().removeprefix("Cookie:").strip()
    if text.startswith("{"):
        try:
            check_json(text.encode())
            return check_cookies(msgspec.json.decode(text))
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ValidationError(_("This is not a JSON object.")) from error
    cookies: dict[str, Any] = {}
    for number, part in enumerate(filter(None, map(str.strip, text.split(";"))), 1):
        name, separator, value = part.partition("=")
        if not separator:
            raise ValidationError(
                _("Cookie %(number)d has no “=”; write name=value; name=value."),
                params={"number": number},
            )
        cookies[name.strip()] = value.strip()
    return check_cookies(cookies)


def check_cookies(value: object) -> dict[str, str]:
    """Return the value if it is an object of valid cookie names and values."""
    if not isinstance(value, dict):
        raise ValidationError(_("Enter an object of names and values."))
    if len(value) > MAX_COOKIES:
        raise ValidationError(
            _("%(count)d cookies are given, at most %(limit)d are allowed."),
            params={"limit": MAX_COOKIES, "count": len(value)},
        )
    for name, text in value.items():
        if not is_token(name, 256):
            raise ValidationError(
                _("“%(name)s” cannot be the name of a cookie."),
                params={"name": name[:_SHOWN].encode("utf-8", "replace").decode()},
            )
        good = isinstance(text, str) and len(text) <= MAX_COOKIE_CHARACTERS
        if not good or not _COOKIE_VALUE.fullmatch(text):
            raise ValidationError(
                _("The value of the cookie %(name)s contains characters that cannot be sent."),
                params={"name": name},
            )
    return value
