"""Mail delivery, one message per recipient."""

from __future__ import annotations

import smtplib
from collections.abc import Callable, Sequence
from email.utils import parseaddr
from typing import Final

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend

from apps.alerts.engine.messages import Message, one_line

# Errors that concern a single recipient.
_OF_RECEIVER: Final = (smtplib.SMTPRecipientsRefused, ValueError)


def send_mail(
    message: Message, receivers: Sequence[str], *, delivered: Callable[[str], None]
) -> dict[str, str]:
    """Mail ``message`` to each recipient, calling ``delivered`` after each; return rejected ones.

    The result maps recipient to reason. Raises ``OSError`` if the server is unreachable or rejects
    the login.
    """
    refused: dict[str, str] = {}
    connection = get_connection(fail_silently=False)
    try:
        # One connection for all; if it fails, no recipient is tried.
        connection.open()
        for receiver in receivers:
            try:
                _mail(message, receiver, connection).send()
            except _OF_RECEIVER as error:
                refused[receiver] = _reason(error)
            else:
                delivered(receiver)
    finally:
        connection.close()
    return refused


def _mail(message: Message, receiver: str, connection: BaseEmailBackend) -> EmailMessage:
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    headers = {
        # Stable across retries, so that mailboxes can drop duplicates.
        "Message-ID": f"<{message.id}.{_ascii(receiver)}@{domain}>",
        "Auto-Submitted": "auto-generated",
        "X-Crawlyard-Event": message.event,
    }
    if message.thread:
        headers["References"] = f"<{message.thread}@{domain}>"
    return EmailMessage(
        subject=message.title,
        body=message.text,
        to=[receiver],
        headers=headers,
        connection=connection,
    )


def _reason(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, text = next(iter(error.recipients.values()))
        message = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        return one_line(f"{code} {message}")
    return type(error).__name__


def _ascii(receiver: str) -> str:
    return "".join(sign if sign.isalnum() and sign.isascii() else "-" for sign in receiver)
