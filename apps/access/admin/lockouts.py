"""Wrong passwords, and whoever is locked out for them."""

from __future__ import annotations

from typing import Any, ClassVar

from axes.models import AccessAttempt
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.decorators import display

from apps.access.admin.base import person_of
from apps.access.admin.lists import CarefulAdmin
from apps.access.admin.people import SuperuserOnly
from apps.access.admin.read_only import ReadOnly
from apps.access.services.lockouts import unlock


@admin.register(AccessAttempt)
class AccessAttemptAdmin(ReadOnly, SuperuserOnly, CarefulAdmin):
    """A row for each name and address; for superusers, auditors look."""

    list_display = ("username", "ip_address", "failures_since_start", "attempt_time", "state")
    search_fields = ("username", "ip_address")
    ordering = ("-attempt_time",)
    list_per_page = 50
    show_full_result_count = False
    actions = ("unlock_selected",)
    # What was typed and sent stays out: a password lands in the field of the name now and then.
    fields: ClassVar[Any] = (
        "username",
        "ip_address",
        "user_agent",
        "path_info",
        "failures_since_start",
        "attempt_time",
    )

    @display(description=_("state"), label={"locked": "danger", "open": "info"})
    def state(self, attempt: AccessAttempt) -> tuple[str, Any]:
        """Whether they have to wait."""
        over = attempt.attempt_time + settings.AXES_COOLOFF_TIME <= timezone.now()
        locked = attempt.failures_since_start >= settings.AXES_FAILURE_LIMIT and not over
        return ("locked", _("locked")) if locked else ("open", _("may try"))

    def has_unlock_permission(self, request: HttpRequest) -> bool:
        """Superusers."""
        return self._is_superuser(request)

    @admin.action(description=_("Let them try again"), permissions=["unlock"])
    def unlock_selected(self, request: HttpRequest, queryset: QuerySet[AccessAttempt]) -> None:
        """Forget the wrong passwords."""
        rows = list(queryset)
        for each in rows:
            unlock(actor=person_of(request), username=each.username or "", address=each.ip_address)
        text = ngettext("%(n)d may try again.", "%(n)d may try again.", len(rows))
        messages.success(request, text % {"n": len(rows)})
