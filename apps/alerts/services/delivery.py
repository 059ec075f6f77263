"""Delivery of due notifications of one channel.

    claim -> message -> HTTP call or mail -> result

A claim moves the next attempt into the future: a worker that dies delays the notification, which
may then be delivered twice. Failures are retried with back-off for a day. A channel that does not
respond, or is over its rate limit, ends the pass; many waiting notifications are combined into one
message.
"""

from __future__ import annotations

import json
import logging
import smtplib
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils.translation import gettext as _

from apps.access.services import record
from apps.alerts.engine.channels import (
    SendOutcome,
    SendResult,
    read_response,
    recipients_of,
    request_of,
)
from apps.alerts.engine.messages import Message, one_line
from apps.alerts.models import Channel, Notice
from apps.alerts.querysets import NoticeQuerySet
from apps.alerts.services.http_calls import AddressNotAllowed, NoResponse, call
from apps.alerts.services.mail import send_mail
from apps.alerts.services.recipients import settings_of
from apps.alerts.services.texts import digest_of, message_of
from apps.alerts.states import SINGLY, ChannelKind, NoticeKind, NoticeProblem, NoticeState
from yardkit import failpoints
from yardkit.backoff import back_off

logger = logging.getLogger(__name__)

# Longer than a worker needs for one message.
CLAIM_SECONDS: Final = 180.0
FIRST_PAUSE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 1800.0
GIVE_UP_AFTER: Final = timedelta(hours=24)
# Time limit of one task; the periodic sweep continues.
SLOT_SECONDS: Final = 60.0
# With more waiting notifications, one digest is sent.
MOST_SINGLY: Final = 3
MOST_TOGETHER: Final = 30
# Rate limits, in messages per minute, below those of the services.
PER_MINUTE: Final[Mapping[str, int]] = {
    ChannelKind.MAIL: 20,
    ChannelKind.SMS: 10,
    ChannelKind.WEBHOOK: 300,
    ChannelKind.DINGTALK: 15,
    ChannelKind.WECOM: 15,
    ChannelKind.FEISHU: 60,
    ChannelKind.SLACK: 50,
    ChannelKind.TEAMS: 30,
    ChannelKind.DISCORD: 25,
    ChannelKind.TELEGRAM: 15,
    ChannelKind.PAGERDUTY: 100,
    ChannelKind.OPSGENIE: 100,
    ChannelKind.NTFY: 12,
}
_HIDDEN: Final = "•••"


@dataclass(frozen=True, slots=True)
class Result:
    """Result of sending one message. An empty ``problem`` means it was sent."""

    problem: str
    answer: str
    wait_seconds: float = 0.0
    is_gone: bool = False

    @property
    def ends_pass(self) -> bool:
        """Return whether further messages to this channel would fail as well."""
        return self.problem != ""


def send_notices(*, channel: int, now: datetime) -> int:
    """Send due notifications of this channel for up to 60 s; return how many were sent."""
    row = Channel.objects.select_related("person").filter(pk=channel).first()
    if row is None:
        return 0
    began, sent = time.monotonic(), 0
    while (passed := time.monotonic() - began) < SLOT_SECONDS:
        at = now + timedelta(seconds=passed)
        batch = _next(row, at)
        claimed = [notice for notice in batch if _claim(notice, at)]
        if not batch:
            break
        if not claimed:
            continue
        failpoints.hit("alerts.notice_claimed")
        result = _send(row, claimed, at)
        failpoints.hit("alerts.notice_sent")
        _finish(row, claimed, result, at + timedelta(seconds=time.monotonic() - began - passed))
        if result.ends_pass:
            break
        sent += len(claimed)
    return sent


def _next(channel: Channel, now: datetime) -> list[Notice]:
    """Return the next notifications to send together; none while the rate limit is reached."""
    due = Notice.objects.due(now).filter(channel=channel)
    if not channel.enabled:
        off = due.exclude(kind=NoticeKind.TEST)
        off.update(state=NoticeState.FAILED, problem=NoticeProblem.OFF, next_try_at=None)
    _drop_stale(due)
    if _sent_lately(channel, now) >= PER_MINUTE[channel.kind]:
        return []
    rows = due.select_related("project", "incident__project", "incident__acknowledged_by")
    notices = list(rows.order_by("pk")[:MOST_TOGETHER])
    if len(notices) <= MOST_SINGLY or channel.kind in SINGLY:
        return notices[:1]
    # A partly delivered notification keeps its message.
    together = [
        notice for notice in notices if not notice.delivered and notice.kind != NoticeKind.TEST
    ]
    return together if len(together) > 1 else notices[:1]


def _drop_stale(due: NoticeQuerySet[Notice]) -> None:
    """Drop failed notifications for which a newer one of the same incident exists."""
    newer = Notice.objects.filter(
        incident=OuterRef("incident"), channel=OuterRef("channel"), pk__gt=OuterRef("pk")
    )
    newer = newer.filter(state__in=(NoticeState.WAITING, NoticeState.SENT), resent_of=None)
    stale = due.filter(Exists(newer), attempts__gt=0, resent_of=None)
    stale.update(state=NoticeState.DROPPED, next_try_at=None)


def _sent_lately(channel: Channel, now: datetime) -> int:
    minute = Notice.objects.filter(channel=channel, sent_at__gt=now - timedelta(minutes=1))
    return minute.values("message").distinct().count()


def _claim(notice: Notice, now: datetime) -> bool:
    """Claim a notification; return False if another worker did."""
    until = now + timedelta(seconds=CLAIM_SECONDS)
    attempts = Notice.objects.due(now).claim(notice.pk, notice.attempts, until=until)
    notice.attempts = attempts or notice.attempts
    return attempts is not None


def _send(channel: Channel, notices: Sequence[Notice], now: datetime) -> Result:
    secrets: dict[str, str] = {}
    try:
        secrets = secrets_of(channel)
        message = (
            message_of(notices[0], channel) if len(notices) == 1 else digest_of(notices, channel)
        )
        result = _deliver(channel, secrets, message, notices, now)
    except Exception as error:  # noqa: BLE001 - one channel must not stop the others
        # Without the error's text, which may contain a secret.
        places = "".join(traceback.format_tb(error.__traceback__))
        kind = type(error).__name__
        logger.error("channel %s: cannot create the message: %s\n%s", channel.pk, kind, places)
        result = Result(NoticeProblem.SETTINGS, kind)
    return Result(
        result.problem, _without(result.answer, secrets), result.wait_seconds, result.is_gone
    )


def _deliver(
    channel: Channel,
    secrets: Mapping[str, str],
    message: Message,
    notices: Sequence[Notice],
    now: datetime,
) -> Result:
    done, began = set(notices[0].delivered), time.monotonic()
    wanted = [
        recipient
        for recipient in recipients_of(channel.kind, settings_of(channel))
        if recipient not in done
    ]
    if not wanted and not done:
        return Result(NoticeProblem.SETTINGS, _("no e-mail address"))

    def delivered(receiver: str) -> None:
        done.add(receiver)
        if receiver:
            # Extend the claim: 50 recipients may take longer than one.
            passed = timedelta(seconds=time.monotonic() - began + CLAIM_SECONDS)
            mine = Notice.objects.filter(pk__in=[notice.pk for notice in notices])
            mine.update(delivered=sorted(done))
            mine.filter(state=NoticeState.WAITING).update(next_try_at=now + passed)

    if channel.kind == ChannelKind.MAIL:
        return _by_mail(message, wanted, delivered)
    refused: dict[str, Result] = {}
    last = Result("", "")
    for receiver in wanted:
        last = _by_http(channel, secrets, message, receiver, now)
        if not last.problem:
            delivered(receiver)
        elif last.problem == NoticeProblem.REFUSED and not last.is_gone:
            # An invalid recipient must not block the others.
            refused[receiver] = last
        else:
            return last
    if not refused:
        return last
    text = "; ".join(
        f"{of}: {failure.answer}" if of else failure.answer for of, failure in refused.items()
    )
    wait = max(failure.wait_seconds for failure in refused.values())
    return Result(NoticeProblem.REFUSED, text, wait)


def _by_mail(message: Message, wanted: Sequence[str], delivered: Any) -> Result:
    try:
        refused = send_mail(message, wanted, delivered=delivered)
    except OSError as error:
        # smtplib's errors are OSErrors, too; server replies contain no password.
        answered = isinstance(error, smtplib.SMTPResponseException)
        return Result(
            NoticeProblem.REFUSED if answered else NoticeProblem.NO_ANSWER, _error_text(error)
        )
    if refused:
        text = "; ".join(f"{receiver}: {why}" for receiver, why in refused.items())
        return Result(NoticeProblem.REFUSED, text)
    return Result("", "")


def _by_http(
    channel: Channel, secrets: Mapping[str, str], message: Message, receiver: str, now: datetime
) -> Result:
    try:
        http_request = request_of(
            channel.kind, message, channel.settings, secrets, receiver=receiver, now=now
        )
    except ValueError as error:
        return Result(NoticeProblem.SETTINGS, one_line(error))
    try:
        result = read_response(channel.kind, call(http_request), channel.settings)
    except AddressNotAllowed:
        return Result(NoticeProblem.ADDRESS, "")
    except NoResponse as error:
        return Result(NoticeProblem.NO_ANSWER, str(error))
    return _result(result)


def _result(result: SendResult) -> Result:
    if result.outcome is SendOutcome.SENT:
        return Result("", result.answer)
    too_many = result.outcome is SendOutcome.TOO_MANY
    return Result(
        NoticeProblem.TOO_MANY if too_many else NoticeProblem.REFUSED,
        result.answer,
        result.wait_seconds,
        is_gone=result.outcome is SendOutcome.GONE,
    )


def _finish(channel: Channel, notices: Sequence[Notice], result: Result, now: datetime) -> None:
    answer = one_line(result.answer, 500)
    for notice in notices:
        # Skip rows that another worker has claimed since.
        mine = Notice.objects.held(notice.pk, notice.attempts)
        if not result.problem:
            mine.update(
                state=NoticeState.SENT,
                sent_at=now,
                next_try_at=None,
                problem="",
                answer=answer,
                message=notices[0].pk,
            )
            continue
        over = result.is_gone or _gives_up(notice, now)
        mine.filter(state=NoticeState.WAITING).update(
            state=NoticeState.FAILED if over else NoticeState.WAITING,
            next_try_at=None if over else now + _pause(notice.attempts, result.wait_seconds),
            problem=result.problem,
            answer=answer,
        )
    if result.problem:
        logger.warning("channel %s: %s", channel.pk, result.problem)
    if result.is_gone:
        _switch_off(channel)


def _gives_up(notice: Notice, now: datetime) -> bool:
    """Return whether to stop retrying: a test after one attempt, others a day after they were
    due."""
    if notice.kind == NoticeKind.TEST:
        return True
    return now - max(notice.created_at, notice.not_before or notice.created_at) > GIVE_UP_AFTER


def _pause(attempts: int, asked_seconds: float) -> timedelta:
    wait = back_off(attempts, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    return timedelta(seconds=max(wait, asked_seconds))


@transaction.atomic
def _switch_off(channel: Channel) -> None:
    """Disable a channel whose server answered 410 Gone, which asks for no further calls."""
    if Channel.objects.filter(pk=channel.pk, enabled=True).update(enabled=False):
        record(
            actor=None,
            action="alerts.change_channel",
            obj=channel,
            before={"enabled": True},
            after={"enabled": False},
            note="HTTP 410",
            actor_label="alerts",
        )


def secrets_of(channel: Channel) -> dict[str, str]:
    """Return the channel's secrets by name. Raises ``SecretError`` if no key decrypts them."""
    stored = json.loads(channel.secrets or "{}")
    return {str(name): str(value) for name, value in stored.items()}


def _without(text: str, secrets: Mapping[str, str]) -> str:
    """Mask secrets in a server's response, which may echo them whole, in parts or quoted."""
    parts = {part for value in secrets.values() for part in _parts(value) if len(part) >= 4}
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, _HIDDEN)
    return text


def _parts(value: str) -> Iterator[str]:
    for part in (value, *value.split()):
        yield part
        yield quote(part, safe="")
        yield json.dumps(part)[1:-1]
    try:
        address = urlsplit(value)
    except ValueError:
        return
    if address.scheme in ("http", "https"):
        # Only the token of a robot's URL is masked: path segments such as "send" are no secret.
        yield f"{address.path}?{address.query}" if address.query else address.path
        for _name, token in parse_qsl(address.query):
            yield token
            yield quote(token, safe="")
        for word in address.path.split("/"):
            if len(word) >= 8:
                yield word


def _error_text(error: Exception) -> str:
    raw = getattr(error, "smtp_error", b"")
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    code = getattr(error, "smtp_code", "")
    # Socket and certificate errors carry their own text.
    text = text or str(error)
    return one_line(f"{type(error).__name__} {code} {text}")
