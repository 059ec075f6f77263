"""Admin page of failed logins and lockouts."""

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
from apps.access.admin.lists import CarefulAdmin, renamed
from apps.access.admin.people import SuperuserOnly
from apps.access.admin.read_only import ReadOnly
from apps.access.services.lockouts import unlock


@admin.register(AccessAttempt)
class AccessAttemptAdmin(ReadOnly, SuperuserOnly, CarefulAdmin):
    """One row for each user name and address; superusers change, auditors view."""

    list_display = ("name_tried", "address", "wrong_passwords", "last_at", "state")
    search_fields = ("username", "ip_address")
    ordering = ("-attempt_time",)
    list_per_page = 50
    show_full_result_count = False
    actions = ("unlock_selected",)
    # User name typed is omitted: people sometimes type their password there.
    fields: ClassVar[Any] = (
        "name_tried",
        "address",
        "browser",
        "page",
        "wrong_passwords",
        "last_at",
    )
    readonly_fields = fields
    name_tried = renamed("username", _("user name"))
    address = renamed("ip_address", _("address"))
    browser = renamed("user_agent", _("user agent"))
    page = renamed("path_info", _("page"))
    wrong_passwords = renamed("failures_since_start", _("wrong passwords"))
    last_at = renamed("attempt_time", _("last at"))

    @display(description=_("state"), label={"locked": "danger", "open": "info"})
    def state(self, attempt: AccessAttempt) -> tuple[str, Any]:
        """Whether the user name is locked out now."""
        over = attempt.attempt_time + settings.AXES_COOLOFF_TIME <= timezone.now()
        locked = attempt.failures_since_start >= settings.AXES_FAILURE_LIMIT and not over
        return ("locked", _("locked")) if locked else ("open", _("unlocked"))

    def has_unlock_permission(self, request: HttpRequest) -> bool:
        return self._is_superuser(request)

    @admin.action(description=_("Unlock"), permissions=["unlock"])
    def unlock_selected(self, request: HttpRequest, queryset: QuerySet[AccessAttempt]) -> None:
        """Delete the failed attempts of the selected rows."""
        rows = list(queryset)
        for row in rows:
            unlock(actor=person_of(request), username=row.username or "", address=row.ip_address)
        text = ngettext("%(n)d may try again.", "%(n)d may try again.", len(rows))
        messages.success(request, text % {"n": len(rows)})
