"""Admin actions with a confirmation page; see ``services.confirmation``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast

from django.conf import settings
from django.contrib import messages
from django.contrib.admin.actions import delete_selected as delete_or_explain
from django.contrib.admin.utils import model_ngettext
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from apps.access.models import Restorable
from apps.access.services.confirmation import NAMED, ask_first

__all__ = ["ask_first", "asks_first", "confirmed", "delete_selected"]

P = ParamSpec("P")
Page = Callable[Concatenate[Any, HttpRequest, P], HttpResponse]
Act = Callable[[Any, HttpRequest, QuerySet[Any]], HttpResponse | None]


def asks_first(
    *, verb: Any, loss: Any, final: bool = True, field: Mapping[str, Any] | None = None
) -> Callable[[Act], Act]:
    """For an action on many rows; ``loss`` may be an ``ngettext_lazy`` over ``count``::

    @action(description=_("Drop"), permissions=["decide"])
    @asks_first(verb=_("Drop"), loss=_("They are not sent again."))
    def drop_selected(self, request, queryset): ...
    """

    def decorate(act: Act) -> Act:
        @wraps(act)
        def answer(self: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
            ids = list(queryset.order_by().values_list("pk", flat=True))
            if not ids:
                return act(self, request, queryset)
            page = ask_first(
                request,
                verb=verb,
                loss=_counted(loss, len(ids)),
                ids=ids,
                names=list(queryset[:NAMED]),
                things=model_ngettext(self.opts, len(ids)),
                back=request.get_full_path(),
                final=final,
                field=field,
            )
            return page if page is not None else act(self, request, queryset)

        cast(Any, answer).asks_first = True
        return answer

    return decorate


def confirmed(question: Any, *, verb: Any, final: bool = True) -> Callable[[Page[P]], Page[P]]:
    """For a button of one object: ask ``question`` first, run the action when it was answered::

    @action(description=_("Stop"), url_path="stop")
    @confirmed(_("Stop this run?"), verb=_("Stop"))
    @shows_refusals
    def stop(self, request, object_id): ...
    """

    def decorate(page: Page[P]) -> Page[P]:
        @wraps(page)
        def answer(
            self: Any, request: HttpRequest, *args: P.args, **kwargs: P.kwargs
        ) -> HttpResponse:
            opts, object_id = self.opts, cast("str | None", kwargs.get("object_id"))
            start = f"admin:{opts.app_label}_{opts.model_name}"
            about = None if object_id is None else self.get_object(request, object_id)
            confirmation = ask_first(
                request,
                verb=verb,
                loss=question,
                ids=[object_id],
                names=[] if about is None else [about],
                back=reverse(f"{start}_changelist")
                if object_id is None
                else reverse(f"{start}_change", args=[object_id]),
                final=final,
            )
            return (
                confirmation if confirmation is not None else page(self, request, *args, **kwargs)
            )

        cast(Any, answer).asks_first = True
        return cast("Page[P]", answer)

    return decorate


def delete_selected(
    model_admin: Any, request: HttpRequest, queryset: QuerySet[Model]
) -> HttpResponse | None:
    """Replaces Django's action of this name, which still shows protected related objects."""
    _all, counts, lacking, protected = model_admin.get_deleted_objects(queryset, request)
    if lacking or protected:
        if request.POST.get("post"):
            raise PermissionDenied
        return cast(HttpResponse, delete_or_explain(model_admin, request, queryset))
    rows, opts = list(queryset), model_admin.opts
    if not rows:
        return None
    restorable = issubclass(model_admin.model, Restorable)
    page = ask_first(
        request,
        verb=_("Delete"),
        loss=_("They are hidden, and can be restored for %(days)d days.")
        % {"days": settings.DELETED_DAYS}
        if restorable
        else _("They are permanently deleted, together with everything that belongs to them."),
        ids=[row.pk for row in rows],
        names=rows,
        things=model_ngettext(opts, len(rows)),
        back=request.get_full_path(),
        final=not restorable,
        more=counts,
    )
    if page is not None:
        return page
    # One refusal aborts all deletions; each object gets its own audit record.
    with transaction.atomic():
        model_admin.log_deletions(request, queryset)
        model_admin.delete_queryset(request, queryset)
    text = ngettext("%(count)d %(things)s deleted.", "%(count)d %(things)s deleted.", len(rows))
    substitutions = {"count": len(rows), "things": model_ngettext(opts, len(rows))}
    messages.success(request, text % substitutions)
    return None


cast(Any, delete_selected).asks_first = True
cast(Any, delete_selected).short_description = gettext_lazy(
    "Delete selected %(verbose_name_plural)s"
)


def _counted(text: Any, count: int) -> Any:
    """Resolve an ``ngettext_lazy`` for the number; return other texts unchanged."""
    try:
        return text % {"count": count}
    except (TypeError, ValueError):
        return text
