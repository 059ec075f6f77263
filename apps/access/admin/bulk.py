"""Bulk actions: rows are processed one by one, and the first errors are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.access.admin.base import projects_of
from apps.access.errors import DomainError
from apps.access.states import Role

T = TypeVar("T")

# Limit of messages: all rows of a long list may fail, and a session cannot hold that many.
MOST_TOLD: Final = 10


def do_each(
    request: HttpRequest,
    rows: Iterable[T],
    do: Callable[[T], Any],
    *,
    named: bool = False,
    refused: Sequence[str] = (),
) -> int:
    """Call ``work`` for each row; return the number of successes.

    ``named``: error messages contain the name of their row. ``refused``: errors of rows that were
    excluded before.
    """
    done, reasons = 0, list(refused)
    for row in rows:
        try:
            do(row)
        except DomainError as error:
            reasons.append(f"{row}: {error.text}" if named else error.text)
        else:
            done += 1
    show_refusals(request, reasons)
    return done


def by_role(
    request: HttpRequest, rows: Iterable[T], role: Role, project: Callable[[T], Any]
) -> tuple[list[T], list[str]]:
    """Split rows by role: those the user may process, and errors for the others."""
    mine, refused = [], []
    for row in rows:
        if project(row).pk in projects_of(request, role):
            mine.append(row)
        else:
            text = _("%(row)s: your role in %(project)s does not allow this.")
            refused.append(text % {"row": row, "project": project(row)})
    return mine, refused


def show_refusals(request: HttpRequest, reasons: Sequence[str]) -> None:
    """Show the first errors, and the number of further ones."""
    for reason in reasons[:MOST_TOLD]:
        messages.warning(request, reason)
    more = len(reasons) - MOST_TOLD
    if more > 0:
        text = ngettext("%(count)d more was refused.", "%(count)d more were refused.", more)
        messages.warning(request, text % {"count": more})
