"""Lists that answer also when somebody wrote their address or the selection by hand."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ERROR_FLAG
from django.db import DataError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin

# As many digits as every 64-bit id may have.
_ID_DIGITS = 18


class CarefulAdmin(ModelAdmin):
    """Base of every admin: nonsense from outside is refused, it is no error of ours."""

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list; without its filters where the database cannot compare with them.

        Zero characters and numbers beyond 64 bits get through Django's own checks. Its title is
        what it lists, not "Select run to view": that is what tabs and bookmarks show.
        """
        title = capfirst(self.model._meta.verbose_name_plural)
        context = {"title": title} | (extra_context or {})
        try:
            return cast(HttpResponse, super().changelist_view(request, context))
        except (DataError, OverflowError):
            return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1")

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Run a bulk action; None when what is selected are no ids."""
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if all(each.isascii() and each.isdigit() and len(each) <= _ID_DIGITS for each in chosen):
            return cast("HttpResponse | None", super().response_action(request, queryset))
        messages.warning(request, _("Nothing was done: the selection is not valid."))
        return None

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The audit trail of this object."""
        about = {"object_type": self.model._meta.label_lower, "object_id": object_id}
        address = reverse("admin:access_auditrecord_changelist")
        return HttpResponseRedirect(f"{address}?{urlencode(about)}")
