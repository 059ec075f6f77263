"""Errors of this app, each with a stable code.

Same shape as ``apps.access.errors.DomainError``, which is in an app above: ``code`` for programs,
``status`` for REST, ``detail`` for people.
"""

from __future__ import annotations

from typing import ClassVar, Final

from django.db import DatabaseError, InterfaceError, OperationalError
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

Text = str | Promise
# Raised by a query when the server is unreachable or the connection was lost.
DATABASE_AWAY: Final = (OperationalError, InterfaceError)
# Raised by any failing query: ``InterfaceError`` is not a ``DatabaseError``.
DATABASE_ERRORS: Final = (DatabaseError, InterfaceError)


class RuntimeRefusal(Exception):
    """Base of this app's errors."""

    code: ClassVar[str] = "runtime_refused"
    status: ClassVar[int] = 409
    detail: Text = _("This is not possible.")

    def __init__(self, detail: Text | None = None) -> None:
        if detail is not None:
            self.detail = detail
        self.fields: dict[str, list[Text]] = {}
        super().__init__(self.detail)

    def __str__(self) -> str:
        return str(self.detail)


class DeadLetterResolved(RuntimeRefusal):
    """The dead letter was requeued or dropped before."""

    code = "dead_letter_resolved"
    detail = _("This dead letter has already been requeued or dropped.")


class DeadLetterHasNoQueue(RuntimeRefusal):
    """The broker did not record the queue of the message, so it cannot be requeued."""

    code = "dead_letter_has_no_queue"
    detail = _("The queue this message came from is unknown; it can only be dropped.")


class OutboxMessageGone(RuntimeRefusal):
    """The message was sent, or dropped, in the meantime."""

    code = "outbox_message_gone"
    detail = _("This message waits no more: it has been sent or dropped.")


class DaemonIsAlive(RuntimeRefusal):
    """The process has sent a recent heartbeat."""

    code = "daemon_is_alive"
    detail = _("This process is alive.")


class NoFreeNumber(RuntimeRefusal):
    """Every number of this purpose is leased."""

    code = "no_free_number"
    status = 503
    detail = _("Every number of this purpose is in use.")


class LeaseLost(RuntimeRefusal):
    """Another process holds the number now: the caller must stop using it at once."""

    code = "lease_lost"
    detail = _("The lease has passed to another process.")


class DaemonReplaced(RuntimeRefusal):
    """A newer process runs under the same kind and name."""

    code = "daemon_replaced"
    detail = _("Another process has started under this name.")
