"""Admin of the ledger: lists of items, the page of one item, and the actions on items."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import model_ngettext
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET, require_POST

from apps.access.admin.base import person_of, projects_of
from apps.access.admin.confirm import ask_first
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.projects.admin.project_choice import ChosenProjectAdmin, ProjectChoice, number_in
from apps.routing.admin import bulk, lists
from apps.routing.admin.item_forms import MOST_NOTE, EditItemForm
from apps.routing.admin.item_page import item_page, typed_of, whole_item
from apps.routing.admin.router import MEDIA
from apps.routing.engine.items import ItemError, read_item
from apps.routing.models import RoutedItem
from apps.routing.queries.tracks import KIND
from apps.routing.services import cancel_item, resubmit_item


@admin.register(RoutedItem)
class RoutedItemAdmin(ChosenProjectAdmin):
    """Lists and actions of routed items.

    Only routers move items; users view, cancel, resubmit and offer parked items again.
    """

    configuration_kind = KIND

    class Media:
        css = {"all": MEDIA}

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the further lists and of the actions."""
        view = self.admin_site.admin_view
        get, post = require_GET, require_POST
        return [
            path("find", view(get(self.find_view)), name="routing_find"),
            path("dead-letters", view(get(self.dead_view)), name="routing_dead_letters"),
            path("parked", view(get(self.parked_view)), name="routing_parked"),
            path("resubmit", view(post(self.bulk_view)), {"verb": "resubmit"}, "routing_resubmit"),
            path("cancel", view(post(self.bulk_view)), {"verb": "cancel"}, "routing_cancel"),
            path("offer", view(post(self.offer_view)), name="routing_offer"),
            path("<int:pk>/item.json", view(get(self.whole_view)), name="routing_item_json"),
            path("<int:pk>/cancel", view(post(self.cancel_view)), name="routing_item_cancel"),
            path("<int:pk>/resubmit", view(post(self.resubmit_view)), name="routing_item_resubmit"),
            path("<int:pk>/edit", view(self.edit_view), name="routing_item_edit"),
            *super().get_urls(),
        ]

    # --- lists ----------------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """List the items of ``?project=``, newest first."""
        return self._list(request, lists.items, _("Routed tasks"))

    def dead_view(self, request: HttpRequest) -> HttpResponse:
        """List items that ended without success and were not resubmitted."""
        return self._list(request, lists.dead_letters, _("Dead letters"))

    def parked_view(self, request: HttpRequest) -> HttpResponse:
        """List items that wait for their outbound."""
        return self._list(request, lists.parked, _("Parked"))

    def find_view(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the item with this task_uuid, or list the items that contain the value."""
        choice = self.chosen(request)
        if choice is not None:
            item = lists.by_uuid(choice, request.GET.get("value", ""))
            if item is not None:
                return HttpResponseRedirect(_address(item.pk))
        return self._list(request, lists.search_results, _("Find routed tasks"))

    def _list(self, request: HttpRequest, make: lists.Make, title: object) -> HttpResponse:
        choice = self.chosen(request)
        context = self.context(request, choice, title)
        if choice is None:
            return TemplateResponse(request, "admin/routing/items.html", context)
        listed = make(request, choice)
        context |= {"listed": listed}
        return TemplateResponse(request, listed.template, context)

    # --- many at once ---------------------------------------------------------------------------

    def bulk_view(self, request: HttpRequest, *, verb: str) -> HttpResponse:
        """Cancel or resubmit the selected items; cancelling asks for confirmation first."""
        choice = self._operated(request)
        if verb == "cancel" and (ticked := bulk.ticked(request, choice)):
            confirmation = ask_first(
                request,
                verb=gettext("Cancel tasks"),
                loss=gettext("The tasks end as cancelled and are not sent again."),
                ids=[item.pk for item in ticked],
                names=ticked,
                things=model_ngettext(self.opts, len(ticked)),
                back=_back(request),
            )
            if confirmation is not None:
                return confirmation
        work = bulk.resubmit if verb == "resubmit" else bulk.cancel
        done = work(request, choice, _typed_note(request))
        for level, text in done.messages_for_user():
            messages.add_message(request, level, text)
        return HttpResponseRedirect(_back(request))

    def offer_view(self, request: HttpRequest) -> HttpResponse:
        """Offer the items that are parked for an outbound again at once."""
        choice = self._operated(request)
        for level, text in bulk.offer(request, choice, _typed_note(request)):
            messages.add_message(request, level, text)
        return HttpResponseRedirect(_back(request))

    # --- one item -------------------------------------------------------------------------------

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the content and the history of an item."""
        item = self._item(request, number_in(object_id))
        context = self.context(request, None, _("Routed task")) | item_page(item, timezone.now())
        context |= {
            "subtitle": str(item.project),
            "may_operate": self._may_operate(request, item),
            "max_note": MOST_NOTE,
        }
        return TemplateResponse(request, "admin/routing/item.html", context)

    def whole_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the item's JSON as a download."""
        return whole_item(self._item(request, pk))

    def cancel_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Cancel an open item after a confirmation."""
        item = self._operable(request, pk)
        confirmation = ask_first(
            request,
            verb=gettext("Cancel task"),
            loss=gettext("The task ends as cancelled and is not sent again."),
            ids=[pk],
            names=[item],
            back=_address(pk),
        )
        if confirmation is not None:
            return confirmation
        try:
            cancel_item(
                item=item, actor=person_of(request), now=timezone.now(), note=_typed_note(request)
            )
        except DomainError as error:
            messages.error(request, error.text)
        else:
            messages.success(request, gettext("The task was cancelled."))
        return HttpResponseRedirect(_address(pk))

    def resubmit_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Submit a dead letter again, unchanged."""
        item = self._operable(request, pk)
        try:
            self._resubmit(request, item, None, _typed_note(request))
        except DomainError as error:
            messages.error(request, error.text)
        return HttpResponseRedirect(_address(pk))

    def edit_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the editor of a dead letter (GET), or submit the changed item (POST)."""
        item = self._operable(request, pk)
        form = EditItemForm(request.POST if request.method == "POST" else None)
        if request.method != "POST":
            form = EditItemForm(initial={"item": typed_of(item)})
        elif form.is_valid():
            try:
                data = read_item(form.cleaned_data["item"])
                self._resubmit(request, item, data, form.cleaned_data["note"])
                return HttpResponseRedirect(_address(pk))
            except ItemError as error:
                form.add_error("item", str(error))
            except DomainError as error:
                form.add_error("item", error.text)
        context = self.context(request, None, _("Edit and submit again"))
        context |= {"item": item, "form": form, "subtitle": str(item.project)}
        return TemplateResponse(request, "admin/routing/item_edit.html", context)

    def _resubmit(
        self, request: HttpRequest, item: RoutedItem, data: dict[str, Any] | None, note: str
    ) -> None:
        entry = resubmit_item(
            item=item, data=data, actor=person_of(request), now=timezone.now(), note=note
        )
        message = gettext("Submitted again as %(uuid)s.") % {"uuid": entry.task_uuid}
        messages.success(request, message)

    # --- who may what ---------------------------------------------------------------------------

    def _operated(self, request: HttpRequest) -> ProjectChoice:
        choice = self.chosen(request)
        if choice is None:
            raise Http404
        if not choice.may_operate:
            raise PermissionDenied
        return choice

    def _item(self, request: HttpRequest, pk: int | None) -> RoutedItem:
        rows = RoutedItem.objects.visible_to(request.user).select_related("project")
        item = None if pk is None else rows.filter(pk=pk).first()
        if item is None:
            raise Http404(
                _(
                    "This task does not exist, is no longer stored, or you do not have "
                    "permission to view it."
                )
            )
        return item

    def _operable(self, request: HttpRequest, pk: int) -> RoutedItem:
        item = self._item(request, pk)
        if not self._may_operate(request, item):
            raise PermissionDenied
        return item

    def _may_operate(self, request: HttpRequest, item: Model) -> bool:
        return item.project_id in projects_of(request, Role.OPERATOR)  # type: ignore[attr-defined]  # of this list


def _address(pk: int) -> str:
    return reverse("admin:routing_routeditem_change", args=[pk])


def _typed_note(request: HttpRequest) -> str:
    """Return the posted note without NUL characters, which PostgreSQL rejects in text."""
    return request.POST.get("note", "").replace("\x00", "")[:MOST_NOTE]


def _back(request: HttpRequest) -> str:
    """Return the URL of the list that the request came from, with its filters.

    Only URLs of the lists of this class are accepted, so that ``back`` cannot redirect elsewhere.
    """
    names = ("routing_dead_letters", "routing_parked", "routing_routeditem_changelist")
    wanted = request.POST.get("back", "")
    for name in names:
        address = reverse(f"admin:{name}")
        if wanted == address or wanted.startswith(f"{address}?"):
            return wanted
    return reverse("admin:routing_routeditem_changelist")
