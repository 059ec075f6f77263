"""Change lists with bounded counts that tolerate manipulated URLs and selections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import display_for_value
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.paginator import Paginator
from django.db import DataError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.views import ChangeList

from apps.access.admin.confirm import delete_selected

# Any number of this many digits fits into 64 bits.
_ID_DIGITS = 18
# Counting more rows would take longer than the rest of the page.
MOST_COUNTED: Final = 10_000
MOST_SEARCHED: Final = 200


def renamed(field: str, label: Any) -> Callable[[Any, Any], Any]:
    """Column and read-only field that relabels a field of a library's model::

    task_name = renamed("task", _("task"))
    """

    @display(description=label, ordering=field)
    def show(self: Any, obj: Any) -> Any:
        return display_for_value(getattr(obj, field), "-")

    return cast("Callable[[Any, Any], Any]", show)


def page_links(request: HttpRequest, name: str, following: object) -> dict[str, str]:
    """Return the links of a page for ``access/pages.html``: ``first`` and ``following``.

    ``first`` is "" on the first page, ``following`` on the last one. ``name`` is the query
    parameter of the cursor, the argument ``following`` the next page's cursor, if there is one.
    """
    query = request.GET.copy()
    behind = query.pop(name, [""])[-1]
    first = f"?{query.urlencode()}" if behind else ""
    query[name] = str(following)
    return {"first": first, "following": f"?{query.urlencode()}" if following else ""}


class BoundedPaginator(Paginator):  # type: ignore[type-arg]  # generic only in the stubs
    """Paginator that counts up to a bound; later rows are reached by filters."""

    template_name = "access/pagination.html"

    @cached_property
    def count(self) -> int:
        """Number of rows; bound + 1 if there are more. One query."""
        rows = cast("QuerySet[Any]", self.object_list)
        return rows.order_by()[: MOST_COUNTED + 1].count()

    @property
    def is_more(self) -> bool:
        """Whether the bound is exceeded."""
        return self.count > MOST_COUNTED

    @property
    def shown_count(self) -> int:
        """Return the number of rows to show; the page says if there are more."""
        return min(self.count, MOST_COUNTED)


class BoundedList(ChangeList):
    """Change list with a bounded count; the count is shown below the list.

    A search is truncated: each of its words becomes a condition, and databases limit their number.
    """

    query: str

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        """Queryset of the truncated search."""
        self.query = self.query[:MOST_SEARCHED]
        return cast("QuerySet[Any]", super().get_queryset(request, *args, **kwargs))

    def get_results(self, request: HttpRequest) -> None:
        """Load the rows of this page."""
        super().get_results(request)
        if self.paginator.is_more:
            self.full_result_count = self.result_count


class CarefulAdmin(ModelAdmin):
    """Base of every admin: invalid URLs and selections do not cause server errors."""

    paginator: type[Paginator[Any]] = BoundedPaginator

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list with a bounded count."""
        return BoundedList

    def changelist_view(self, request: HttpRequest, /, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the list; drop filters with values that the database cannot compare.

        NUL characters and numbers beyond 64 bits pass Django's own checks. The title is the plural
        name of the model instead of "Select run to view", since tabs and bookmarks show it.
        """
        given: dict[str, Any] | None = args[0] if args else kwargs.get("extra_context")
        context = {"title": capfirst(self.model._meta.verbose_name_plural)} | (given or {})
        try:
            return cast(HttpResponse, super().changelist_view(request, context))
        except (DataError, OverflowError):
            return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1")

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Run a bulk action; None if the selection contains invalid ids."""
        if request.POST.get("select_across") == "1" and self._is_more(request, queryset):
            text = _(
                "Nothing was done: more than %(most)s rows are selected. Narrow the list first."
            )
            messages.warning(request, text % {"most": f"{MOST_COUNTED:,}"})
            return None
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if all(
            pk_text.isascii() and pk_text.isdigit() and len(pk_text) <= _ID_DIGITS
            for pk_text in chosen
        ):
            return cast("HttpResponse | None", super().response_action(request, queryset))
        messages.warning(request, _("Nothing was done: the selection is not valid."))
        return None

    def _is_more(self, request: HttpRequest, queryset: QuerySet[Any]) -> bool:
        paginator = self.get_paginator(request, queryset, self.list_per_page)
        return isinstance(paginator, BoundedPaginator) and paginator.is_more

    def get_actions(self, request: HttpRequest) -> Any:
        """Replace Django's delete action by one with our confirmation page."""
        actions = super().get_actions(request)
        if "delete_selected" in actions:
            actions["delete_selected"] = self.get_action(delete_selected)
        return actions

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the audit trail of this object."""
        about = {"object_type": self.model._meta.label_lower, "object_id": object_id}
        address = reverse("admin:access_auditrecord_changelist")
        return HttpResponseRedirect(f"{address}?{urlencode(about)}")
