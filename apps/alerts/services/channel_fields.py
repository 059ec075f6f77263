"""Fields of each channel kind with their validation.

The admin form, the REST validation and the documentation are generated from this table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.channels.sms import PLACE
from apps.alerts.errors import BadChannel
from apps.alerts.states import ChannelKind
from yardkit.addresses import AddressFault, check_address
from yardkit.names import is_header_value, is_token
from yardkit.standard_webhooks import secret_problem

MOST_RECEIVERS: Final = 50
MOST_TEXT: Final = 4000
_NUMBER: Final = re.compile(r"\+?[0-9][0-9 -]{1,24}")
_SECRET_HEADER: Final = re.compile(r"auth|key|token|secret|cookie|pass", re.IGNORECASE)
Text = str | Promise


@dataclass(frozen=True, slots=True)
class ChannelField:
    """One field of a channel. ``read`` converts input to the stored value or raises
    ``InvalidValue``."""

    name: str
    label: Text
    read: Callable[[Any], Any]
    help: Text = ""
    is_secret: bool = False
    is_required: bool = False
    # Widget: line, lines, flag or choice.
    asks: str = "line"
    choices: tuple[tuple[str, Text], ...] = ()
    default: Any = ""


class InvalidValue(ValueError):
    """The input is invalid; the argument is a translated message."""


# --- reading what was typed ----------------------------------------------------------------------


def _line(value: Any) -> str:
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


def _emails(value: Any) -> list[str]:
    addresses = _list(value, r"[\s,;]+")
    for address in addresses:
        try:
            validate_email(address)
        except ValidationError:
            raise InvalidValue(
                _("Invalid e-mail address: %(text)s.") % {"text": address[:100]}
            ) from None
    return addresses


def _numbers(value: Any) -> list[str]:
    numbers = _list(value, r"[,;\n\r]+")
    for number in numbers:
        if not _NUMBER.fullmatch(number):
            raise InvalidValue(_("Invalid phone number: %(text)s.") % {"text": number[:100]})
    return [re.sub(r"[ -]", "", number) for number in numbers]


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(_("Enter yes or no."))
    return value


def _one_of(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in choices:
            raise InvalidValue(_("Choose one of: %(choices)s.") % {"choices": ", ".join(choices)})
        return str(value)

    return read


def _characters(value: Any) -> int:
    text = "" if isinstance(value, bool) else str(value)
    # int() raises a ValueError of its own for thousands of digits.
    if not text.isdecimal() or len(text) > 4 or not 20 <= int(text) <= 1000:
        raise InvalidValue(_("Enter a number from 20 to 1000."))
    return int(text)


def _address(value: Any) -> str:
    """Validate a URL as far as possible without resolving its host name."""
    text = _line(value)
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


def _robot(has_token: Callable[[Any], bool]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        text = _address(value)
        if not has_token(urlsplit(text)):
            raise InvalidValue(
                _("Copy the complete webhook URL that the group shows for its robot.")
            )
        return text

    return read


def _key(value: Any) -> str:
    text = _line(value)
    if text and len(text) < 8:
        raise InvalidValue(_("Enter at least 8 characters."))
    return text


def _webhook_key(value: Any) -> str:
    text = _line(value)
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


def _headers(value: Any) -> dict[str, str]:
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


def _template(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MOST_TEXT or "\0" in value:
        raise InvalidValue(_("Enter at most 4000 characters."))
    return value.strip()


# --- the kinds -----------------------------------------------------------------------------------

_ALL: Final = ChannelField("all", _("Mention everyone"), _flag, asks="flag", default=False)
_MOBILES: Final = ChannelField(
    "mobiles",
    _("Mention by phone number"),
    _numbers,
    _("Group members to mention; one number per line."),
    asks="lines",
    default=[],
)


def _url(read: Callable[[Any], str], help_text: Text) -> ChannelField:
    return ChannelField("url", _("URL"), read, help_text, is_secret=True, is_required=True)


FIELDS: Final[Mapping[str, tuple[ChannelField, ...]]] = {
    ChannelKind.MAIL: (
        ChannelField(
            "to",
            _("To"),
            _emails,
            _("E-mail addresses, one per line. Each gets a separate message."),
            is_required=True,
            asks="lines",
            default=[],
        ),
    ),
    ChannelKind.SMS: (
        ChannelField(
            "numbers",
            _("Phone numbers"),
            _numbers,
            _("Phone numbers, one per line. The gateway is called once for each."),
            is_required=True,
            asks="lines",
            default=[],
        ),
        ChannelField(
            "url",
            _("URL"),
            _address,
            _("URL of the gateway. Placeholders: {number}, {text}, {id}, {secret}."),
            is_required=True,
        ),
        ChannelField(
            "method",
            _("Method"),
            _one_of("POST", "PUT", "GET"),
            asks="choice",
            choices=(("POST", "POST"), ("PUT", "PUT"), ("GET", "GET")),
            default="POST",
        ),
        ChannelField(
            "content",
            _("Body format"),
            _one_of("json", "form"),
            asks="choice",
            choices=(("json", "JSON"), ("form", _("Form data"))),
            default="json",
        ),
        ChannelField(
            "body",
            _("Body"),
            _template,
            _('For example {"to": "{number}", "text": "{text}"} or to={number}&text={text}.'),
            asks="lines",
        ),
        ChannelField(
            "headers",
            _("Headers"),
            _headers,
            _("One per line, for example Authorization: Bearer {secret}."),
            asks="lines",
            default={},
        ),
        ChannelField(
            "success",
            _("Success text"),
            _line,
            _("Text in successful responses only, for gateways that report errors with HTTP 200."),
        ),
        ChannelField(
            "characters", _("Length limit"), _characters, _("Longer messages are cut."), default=200
        ),
        ChannelField("secret", _("Secret"), _line, _("Value of {secret}."), is_secret=True),
    ),
    ChannelKind.WEBHOOK: (
        _url(_address, _("URL that receives a POST with JSON.")),
        ChannelField(
            "key",
            _("Signing key"),
            _webhook_key,
            _(
                "Standard Webhooks key: whsec_ and base64, or any text of at least 16 characters. "
                "To rotate it, enter the new and the old key separated by a space."
            ),
            is_secret=True,
            is_required=True,
        ),
    ),
    ChannelKind.DINGTALK: (
        _url(
            _robot(lambda parts: "access_token" in parse_qs(parts.query)),
            "https://oapi.dingtalk.com/robot/send?access_token=…",
        ),
        ChannelField(
            "key",
            _("Signing key"),
            _key,
            _("For robots with signature verification; the key begins with SEC."),
            is_secret=True,
        ),
        _MOBILES,
        _ALL,
    ),
    ChannelKind.WECOM: (
        _url(
            _robot(lambda parts: "key" in parse_qs(parts.query)),
            "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…",
        ),
        _MOBILES,
        _ALL,
    ),
    ChannelKind.FEISHU: (
        _url(
            _robot(lambda parts: "/hook/" in parts.path),
            "https://open.feishu.cn/open-apis/bot/v2/hook/…",
        ),
        ChannelField(
            "key",
            _("Signing key"),
            _key,
            _("For robots with signature verification."),
            is_secret=True,
        ),
        _ALL,
    ),
}


def read_fields(
    kind: str, typed: Mapping[str, Any], *, stored: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return settings and secrets from input. Raises ``BadChannel`` with problems by field.

    ``typed``: input by field name; a missing setting is reset. ``stored``: current secrets; a
    missing secret is kept, "" removes it.
    """
    known = {field.name: field for field in FIELDS[kind]}
    errors: dict[str, list[Text]] = {
        name: [_("This kind of channel has no such field.")] for name in typed if name not in known
    }
    plain: dict[str, Any] = {}
    secrets: dict[str, str] = {}
    for name, field in known.items():
        before = stored.get(name, "") if field.is_secret else field.default
        try:
            value = field.read(typed[name]) if name in typed and typed[name] != "" else None
        except InvalidValue as wrong:
            errors[name] = [wrong.args[0]]
            continue
        if value is None:
            value = "" if field.is_secret and name in typed else before
        if field.is_required and not value:
            errors[name] = [_("This field is required.")]
        elif field.is_secret:
            secrets |= {name: value} if value else {}
        else:
            plain[name] = value
    if kind == ChannelKind.SMS and not errors:
        errors |= _gateway_problems(plain)
    if errors:
        raise BadChannel(fields=errors)
    return plain, secrets


def _gateway_problems(plain: Mapping[str, Any]) -> dict[str, list[Text]]:
    body = plain["body"]
    if "{text}" not in plain["url"] + body:
        return {"body": [_("The body must contain {text}, otherwise the message is empty.")]}
    if plain["method"] == "GET" and body:
        return {"body": [_("GET requests have no body.")]}
    try:
        if body and plain["content"] == "json":
            json.loads(body)
        elif body:
            parse_qsl(body, keep_blank_values=True, strict_parsing=True)
    except (ValueError, RecursionError):
        return {"body": [_("The body does not have the selected format.")]}
    return {}


def shown_host(secrets: Mapping[str, str], plain: Mapping[str, Any]) -> str:
    """Return the host name of the channel's URL; the rest of the URL may be secret."""
    address = secrets.get("url") or str(plain.get("url", ""))
    try:
        return urlsplit(PLACE.sub("x", address)).hostname or ""
    except ValueError:
        return ""


def stored_secrets(kind: str, secrets: Mapping[str, str]) -> Sequence[str]:
    """Return the names of the stored secrets."""
    return [field.name for field in FIELDS[kind] if field.is_secret and secrets.get(field.name)]
