"""Readers of the values of channel fields: from input to what is stored."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils.translation import gettext_lazy as _

from yardkit.addresses import AddressFault, check_address
from yardkit.names import is_header_value, is_token
from yardkit.standard_webhooks import secret_problem

MOST_RECEIVERS: Final = 50
MOST_TEXT: Final = 4000
_NUMBER: Final = re.compile(r"\+?[0-9][0-9 -]{1,24}")
_SECRET_HEADER: Final = re.compile(r"auth|key|token|secret|cookie|pass", re.IGNORECASE)


class InvalidValue(ValueError):
    """The input is invalid; the argument is a translated message."""


def line_of(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise InvalidValue(_("Enter one line of text."))
    if any(not sign.isprintable() for sign in value.strip()):
        raise InvalidValue(_("Enter one line of text."))
    return value.strip()


def _list(value: Any, split: str) -> list[str]:
    if isinstance(value, str):
        value = re.split(split, value)
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise InvalidValue(_("Enter a list of strings."))
    parts = list(dict.fromkeys(part.strip() for part in value if part.strip()))
    if len(parts) > MOST_RECEIVERS:
        raise InvalidValue(_("At most 50 recipients; use a group or a mailing list for more."))
    return parts


def emails_of(value: Any) -> list[str]:
    addresses = _list(value, r"[\s,;]+")
    for address in addresses:
        try:
            validate_email(address)
        except ValidationError:
            raise InvalidValue(
                _("Invalid e-mail address: %(text)s.") % {"text": address[:100]}
            ) from None
    return addresses


def numbers_of(value: Any) -> list[str]:
    numbers = _list(value, r"[,;\n\r]+")
    for number in numbers:
        if not _NUMBER.fullmatch(number):
            raise InvalidValue(_("Invalid phone number: %(text)s.") % {"text": number[:100]})
    return [re.sub(r"[ -]", "", number) for number in numbers]


def flag_of(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(_("Enter yes or no."))
    return value


def one_of(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in choices:
            raise InvalidValue(_("Choose one of: %(choices)s.") % {"choices": ", ".join(choices)})
        return str(value)

    return read


def characters_of(value: Any) -> int:
    text = "" if isinstance(value, bool) else str(value)
    # int() raises a ValueError of its own for thousands of digits.
    if not text.isdecimal() or len(text) > 4 or not 20 <= int(text) <= 1000:
        raise InvalidValue(_("Enter a number from 20 to 1000."))
    return int(text)


def address_of(value: Any) -> str:
    """Validate a URL as far as possible without resolving its host name."""
    text = line_of(value)
    try:
        parts = urlsplit(text)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        raise InvalidValue(_("Enter a URL such as https://host/path without credentials."))
    if "{" in parts.netloc:
        raise InvalidValue(_("The host name cannot contain placeholders."))
    verdict = check_address(
        host, allowed_networks=settings.ALERTS_ALLOWED_NETWORKS, resolve=lambda _name: []
    )
    if verdict.problem in (AddressFault.BLOCKED, AddressFault.MALFORMED):
        raise InvalidValue(
            _("This address is not allowed. Add its network to ALERTS_ALLOWED_NETWORKS.")
        )
    return text


def robot_address(has_token: Callable[[Any], bool]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        text = address_of(value)
        if not has_token(urlsplit(text)):
            raise InvalidValue(
                _("Copy the complete webhook URL that the group shows for its robot.")
            )
        return text

    return read


def key_of(value: Any) -> str:
    text = line_of(value)
    if text and len(text) < 8:
        raise InvalidValue(_("Enter at least 8 characters."))
    return text


def _matching(pattern: str, problem: Any) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        text = line_of(value)
        if text and not re.fullmatch(pattern, text):
            raise InvalidValue(problem)
        return text

    return read


bot_token_of: Final = _matching(
    r"[0-9]{3,20}:[A-Za-z0-9_-]{10,100}", _("Enter the token as BotFather shows it.")
)
topic_of: Final = _matching(r"[0-9]{1,18}", _("Enter a number."))
ntfy_topic_of: Final = _matching(
    r"[A-Za-z0-9_-]{1,64}", _("Use letters, digits, '-' and '_'; at most 64 characters.")
)


def webhook_key_of(value: Any) -> str:
    text = line_of(value)
    keys = text.split()
    if len(keys) > 2:
        raise InvalidValue(_("Enter one key, or the new and the old key separated by a space."))
    for key in keys:
        problem = secret_problem(key)
        if problem == "short":
            raise InvalidValue(_("Enter at least 16 characters."))
        if problem:
            raise InvalidValue(_("The part after whsec_ is not valid base64."))
    return text


def headers_of(value: Any) -> dict[str, str]:
    if isinstance(value, str):
        rows = [row.partition(":") for row in value.splitlines() if row.strip()]
        if not all(sign for _name, sign, _rest in rows):
            raise InvalidValue(_("Enter one header per line, as Name: value."))
        value = {name.strip(): rest.strip() for name, _sign, rest in rows}
    if not isinstance(value, dict) or len(value) > 20:
        raise InvalidValue(_("Enter one header per line, as Name: value."))
    for name, text in value.items():
        if not is_token(name, 100) or not is_header_value(text, 1000):
            raise InvalidValue(_("Enter one header per line, as Name: value."))
        if _SECRET_HEADER.search(name) and "{secret}" not in text:
            raise InvalidValue(_("Use {secret} here and enter the secret in its own field."))
    return dict(value)


def template_of(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MOST_TEXT or "\0" in value:
        raise InvalidValue(_("Enter at most 4000 characters."))
    return value.strip()
