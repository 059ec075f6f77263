"""Pages for changing one's own password and for saved filters."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.views import PasswordChangeView
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse_lazy
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST
from unfold.forms import AdminOwnPasswordChangeForm

from apps.access.errors import DomainError
from apps.access.models import SavedFilter, User
from apps.access.services import (
    delete_filter,
    password_was_set,
    person_of,
    rename_filter,
    save_filter,
)
from apps.access.services.confirmation import ask_first


class OwnPasswordChange(PasswordChangeView):
    """The admin's password form; writes an audit record and redirects to the home page."""

    form_class = AdminOwnPasswordChangeForm
    success_url = reverse_lazy("admin:index")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the context of the admin's base template."""
        context = {**admin.site.each_context(self.request), **super().get_context_data(**kwargs)}
        if cast(User, self.request.user).must_change_password:
            context["title"] = _("Choose your own password first")
        return context

    def form_valid(self, form: Any) -> HttpResponse:
        """Save and write the audit record."""
        response = super().form_valid(form)
        user = cast(User, form.user)
        password_was_set(actor=user, user=user, but=self.request.session.session_key)
        messages.success(self.request, _("Your password has been changed."))
        return response


def locked_out(request: HttpRequest, *_given: Any) -> HttpResponse:
    """Login response after too many failed attempts; called by django-axes."""
    wait: timedelta = settings.AXES_COOLOFF_TIME
    minutes = max(1, round(wait.total_seconds() / 60))
    context = {
        **admin.site.each_context(request),
        "title": _("Too many wrong passwords"),
        "minutes": minutes,
    }
    headers = {"Retry-After": str(minutes * 60), "Cache-Control": "no-store"}
    return TemplateResponse(
        request, "access/locked_out.html", context, status=429, headers=headers
    ).render()


@require_POST
def add_filter(request: HttpRequest) -> HttpResponse:
    """Save the filter of a list, and return to the list."""
    given = {name: request.POST.get(name, "") for name in ("path", "name", "query")}
    try:
        saved = save_filter(user=_person(request), **given)
    except DomainError as error:
        messages.error(request, error.text)
        return _back(request, f"{given['path']}?{given['query']}")
    messages.success(request, _("Filter “%(name)s” saved.") % {"name": saved.name})
    return _back(request, saved.address)


@require_POST
def rename_saved_filter(request: HttpRequest, pk: int) -> HttpResponse:
    """Rename a filter of the user."""
    try:
        rename_filter(
            user=_person(request), saved=_own(request, pk), name=request.POST.get("name", "")
        )
    except DomainError as error:
        messages.error(request, error.text)
    return _back(request, request.POST.get("back", ""))


@require_POST
def delete_saved_filter(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete a filter of the user after a confirmation."""
    saved = _own(request, pk)
    confirmation = ask_first(
        request,
        verb=_("Delete"),
        loss=_("This filter has been deleted."),
        ids=[saved.pk],
        names=[saved],
        back=saved.path,
    )
    if confirmation is not None:
        return confirmation
    delete_filter(user=_person(request), saved=saved)
    messages.success(request, _("Filter “%(name)s” deleted.") % {"name": saved.name})
    return _back(request, request.POST.get("back", ""))


def _person(request: HttpRequest) -> User:
    person = person_of(request)
    if person is None:
        raise Http404
    return person


def _own(request: HttpRequest, pk: int) -> SavedFilter:
    rows = SavedFilter.objects.visible_to(_person(request))
    saved: SavedFilter | None = rows.filter(pk=pk).first()
    if saved is None:
        raise Http404
    return saved


def _back(request: HttpRequest, address: str) -> HttpResponse:
    """Return a redirect to ``next`` if it is a URL of this server."""
    if address.startswith("/") and url_has_allowed_host_and_scheme(address, allowed_hosts=None):
        return HttpResponseRedirect(address)
    return HttpResponseRedirect(reverse_lazy("admin:index"))
