"""Bulk actions on items of the ledger: resubmit, cancel, offer parked items again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.access.admin.base import person_of
from apps.access.errors import DomainError
from apps.access.models import User
from apps.projects.admin.project_choice import ProjectChoice, number_in
from apps.routing.models import RoutedItem
from apps.routing.services import cancel_item, offer_parked, resubmit_item

# Upper limit of items in one request, whatever the form sent.
MOST: Final = 500
Said = tuple[int, str]


@dataclass(slots=True)
class BulkActionResult:
    """Result of a bulk action: the number of changed items, and the refusals by reason."""

    texts: Callable[[int], str]
    count: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def messages_for_user(self) -> list[Said]:
        """Return the messages for the user as pairs of message level and text."""
        shown: list[Said] = []
        if self.count:
            shown.append((messages.SUCCESS, self.texts(self.count)))
        shown += [
            (messages.WARNING, f"{count} × {text}" if count > 1 else text)
            for text, count in self.refused.items()
        ]
        return shown or [(messages.WARNING, _("No action taken: no task is selected."))]


def ticked(request: HttpRequest, choice: ProjectChoice) -> list[RoutedItem]:
    """Return the selected items of the project; the columns ``item`` and ``steps`` are deferred."""
    sent = [number_in(value) for value in request.POST.getlist(ACTION_CHECKBOX_NAME)[:MOST]]
    numbers = [number for number in sent if number is not None]
    rows = RoutedItem.objects.filter(project=choice.project, pk__in=numbers)
    return list(rows.defer("item", "steps").order_by("id"))


def resubmit(request: HttpRequest, choice: ProjectChoice, note: str) -> BulkActionResult:
    """Submit the selected items again, unchanged."""

    def one(item: RoutedItem, actor: User | None) -> None:
        resubmit_item(item=item, actor=actor, now=timezone.now(), note=note)

    return _each(request, choice, one, _resubmitted)


def cancel(request: HttpRequest, choice: ProjectChoice, note: str) -> BulkActionResult:
    """Cancel the selected items."""

    def one(item: RoutedItem, actor: User | None) -> None:
        cancel_item(item=item, actor=actor, now=timezone.now(), note=note)

    return _each(request, choice, one, _cancelled)


def offer(request: HttpRequest, choice: ProjectChoice, note: str) -> list[Said]:
    """Offer the items that are parked for the posted ``outbound`` again at once."""
    outbound = request.POST.get("outbound", "").replace("\x00", "")
    count = offer_parked(
        project=choice.project,
        outbound=outbound,
        actor=person_of(request),
        now=timezone.now(),
        note=note,
    )
    if not count:
        text = _("No task is parked for %(outbound)s, or routers are already dispatching them.")
        return [(messages.WARNING, text % {"outbound": outbound})]
    message = ngettext(
        "Dispatch of %(count)d task to %(outbound)s is retried now.",
        "Dispatch of %(count)d tasks to %(outbound)s is retried now.",
        count,
    )
    return [(messages.SUCCESS, message % {"count": count, "outbound": outbound})]


def _each(
    request: HttpRequest,
    choice: ProjectChoice,
    one: Callable[[RoutedItem, User | None], Any],
    texts: Callable[[int], str],
) -> BulkActionResult:
    """Apply ``one`` to every selected item in its own transaction; count refusals by their text."""
    done = BulkActionResult(texts)
    actor = person_of(request)
    for item in ticked(request, choice):
        try:
            one(item, actor)
            done.count += 1
        except DomainError as error:
            done.refused[error.text] = done.refused.get(error.text, 0) + 1
    return done


def _resubmitted(count: int) -> str:
    text = ngettext(
        "%(count)d task was submitted again.", "%(count)d tasks were submitted again.", count
    )
    return text % {"count": count}


def _cancelled(count: int) -> str:
    text = ngettext("%(count)d task was cancelled.", "%(count)d tasks were cancelled.", count)
    return text % {"count": count}
