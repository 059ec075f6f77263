"""Bulk actions of the admin: each row is processed by itself, and the first refusals are shown."""

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

# Every row of a whole list may be refused: no page and no session holds that many messages.
MOST_TOLD: Final = 10


def do_each(
    request: HttpRequest,
    rows: Iterable[T],
    do: Callable[[T], Any],
    *,
    named: bool = False,
    refused: Sequence[str] = (),
) -> int:
    """Do it with each row; how many were done.

    ``named``: refusals do not name their row themselves. ``refused``: why others are not among the
    rows.
    """
    done, reasons = 0, list(refused)
    for row in rows:
        try:
            do(row)
        except DomainError as error:
            reasons.append(f"{row}: {error.text}" if named else error.text)
        else:
            done += 1
    tell_refusals(request, reasons)
    return done


def by_role(
    request: HttpRequest, rows: Iterable[T], role: Role, project: Callable[[T], Any]
) -> tuple[list[T], list[str]]:
    """The rows in whose project the person has the role, and why the others are left out."""
    mine, refused = [], []
    for row in rows:
        if project(row).pk in projects_of(request, role):
            mine.append(row)
        else:
            text = _("%(row)s: your role in %(project)s does not allow this.")
            refused.append(text % {"row": row, "project": project(row)})
    return mine, refused


def tell_refusals(request: HttpRequest, reasons: Sequence[str]) -> None:
    """Why some were not done, and how many more."""
    for reason in reasons[:MOST_TOLD]:
        messages.warning(request, reason)
    more = len(reasons) - MOST_TOLD
    if more > 0:
        text = ngettext("%(count)d more was refused.", "%(count)d more were refused.", more)
        messages.warning(request, text % {"count": more})
