"""Fields of each channel kind.

The admin form, the REST validation and the documentation are generated from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.channels import ntfy, opsgenie, pagerduty, telegram
from apps.alerts.services.channel_values import (
    address_of,
    bot_token_of,
    characters_of,
    emails_of,
    flag_of,
    headers_of,
    key_of,
    line_of,
    ntfy_topic_of,
    numbers_of,
    one_of,
    robot_address,
    template_of,
    topic_of,
    webhook_key_of,
)
from apps.alerts.states import ChannelKind

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


_ALL: Final = ChannelField("all", _("Mention everyone"), flag_of, asks="flag", default=False)


def _server(default: str, help_text: Text) -> ChannelField:
    return ChannelField("url", _("Server"), address_of, help_text, default=default)


_MOBILES: Final = ChannelField(
    "mobiles",
    _("Mention by phone number"),
    numbers_of,
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
            emails_of,
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
            numbers_of,
            _("Phone numbers, one per line. The gateway is called once for each."),
            is_required=True,
            asks="lines",
            default=[],
        ),
        ChannelField(
            "url",
            _("URL"),
            address_of,
            _("URL of the gateway. Placeholders: {number}, {text}, {id}, {secret}."),
            is_required=True,
        ),
        ChannelField(
            "method",
            _("Method"),
            one_of("POST", "PUT", "GET"),
            asks="choice",
            choices=(("POST", "POST"), ("PUT", "PUT"), ("GET", "GET")),
            default="POST",
        ),
        ChannelField(
            "content",
            _("Body format"),
            one_of("json", "form"),
            asks="choice",
            choices=(("json", "JSON"), ("form", _("Form data"))),
            default="json",
        ),
        ChannelField(
            "body",
            _("Body"),
            template_of,
            _('For example {"to": "{number}", "text": "{text}"} or to={number}&text={text}.'),
            asks="lines",
        ),
        ChannelField(
            "headers",
            _("Headers"),
            headers_of,
            _("One per line, for example Authorization: Bearer {secret}."),
            asks="lines",
            default={},
        ),
        ChannelField(
            "success",
            _("Success text"),
            line_of,
            _("Text in successful responses only, for gateways that report errors with HTTP 200."),
        ),
        ChannelField(
            "characters",
            _("Length limit"),
            characters_of,
            _("Longer messages are cut."),
            default=200,
        ),
        ChannelField("secret", _("Secret"), line_of, _("Value of {secret}."), is_secret=True),
    ),
    ChannelKind.WEBHOOK: (
        _url(address_of, _("URL that receives a POST with JSON.")),
        ChannelField(
            "key",
            _("Signing key"),
            webhook_key_of,
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
            robot_address(lambda parts: "access_token" in parse_qs(parts.query)),
            "https://oapi.dingtalk.com/robot/send?access_token=…",
        ),
        ChannelField(
            "key",
            _("Signing key"),
            key_of,
            _("For robots with signature verification; the key begins with SEC."),
            is_secret=True,
        ),
        _MOBILES,
        _ALL,
    ),
    ChannelKind.WECOM: (
        _url(
            robot_address(lambda parts: "key" in parse_qs(parts.query)),
            "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…",
        ),
        _MOBILES,
        _ALL,
    ),
    ChannelKind.FEISHU: (
        _url(
            robot_address(lambda parts: "/hook/" in parts.path),
            "https://open.feishu.cn/open-apis/bot/v2/hook/…",
        ),
        ChannelField(
            "key",
            _("Signing key"),
            key_of,
            _("For robots with signature verification."),
            is_secret=True,
        ),
        _ALL,
    ),
    ChannelKind.SLACK: (
        _url(
            robot_address(lambda parts: len(parts.path.split("/services/")[-1].split("/")) >= 3),
            "https://hooks.slack.com/services/…",
        ),
        _ALL,
    ),
    ChannelKind.TEAMS: (
        _url(
            robot_address(lambda parts: len(parts.path) > 1),
            _("URL of the workflow “Post to a channel when a webhook request is received”."),
        ),
    ),
    ChannelKind.DISCORD: (
        _url(
            robot_address(lambda parts: "/webhooks/" in parts.path),
            "https://discord.com/api/webhooks/…",
        ),
        _ALL,
    ),
    ChannelKind.TELEGRAM: (
        ChannelField(
            "token",
            _("Bot token"),
            bot_token_of,
            _("BotFather shows it, for example 123456:ABC-DEF…"),
            is_secret=True,
            is_required=True,
        ),
        ChannelField(
            "chat",
            _("Chat"),
            line_of,
            _("ID of the chat or group, for example -1001234567890, or @name of a channel."),
            is_required=True,
        ),
        ChannelField("topic", _("Topic"), topic_of, _("ID of a topic of the group, if any.")),
        _server(telegram.SERVER, _("Another server of the Bot API.")),
    ),
    ChannelKind.PAGERDUTY: (
        ChannelField(
            "key",
            _("Integration key"),
            key_of,
            _("Of an integration “Events API v2” of the service."),
            is_secret=True,
            is_required=True,
        ),
        _server(pagerduty.SERVER, _("In the EU: https://events.eu.pagerduty.com.")),
    ),
    ChannelKind.OPSGENIE: (
        ChannelField(
            "key",
            _("API key"),
            key_of,
            _("Of an API integration of the team."),
            is_secret=True,
            is_required=True,
        ),
        _server(opsgenie.SERVER, _("In the EU: https://api.eu.opsgenie.com.")),
    ),
    ChannelKind.NTFY: (
        ChannelField(
            "topic",
            _("Topic"),
            ntfy_topic_of,
            _("Whoever knows the topic of a public server can read it."),
            is_secret=True,
            is_required=True,
        ),
        ChannelField(
            "token", _("Access token"), key_of, _("For topics that require one."), is_secret=True
        ),
        _server(ntfy.SERVER, _("Your own ntfy server.")),
    ),
}
