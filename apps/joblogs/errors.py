"""Errors of this app."""

from __future__ import annotations

from typing import ClassVar

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class LogsError(DomainError):
    """Base of this app's errors."""


class LogsUnavailable(LogsError):
    """The log store is unavailable."""

    code = "logs_unavailable"
    status: ClassVar[int] = 503
    detail = _("The log store is unavailable. No line is lost: new lines wait in the queue.")


class BadSearch(LogsError):
    """No store can execute this search."""

    code = "bad_search"
    status: ClassVar[int] = 422
    detail = _("Invalid search.")
