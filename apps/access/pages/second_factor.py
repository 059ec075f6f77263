"""Pages that set up, verify and remove the second factor."""

from __future__ import annotations

from typing import Any

import segno
from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from apps.access.errors import DomainError
from apps.access.models import User
from apps.access.services import person_of
from apps.access.services.second_factor import (
    SESSION_KEY,
    address_of,
    begin_factor,
    confirm_factor,
    factor_of,
    needs_factor,
    remove_factor,
    verify_factor,
)

MAX_CODE = 40


@never_cache
def verify(request: HttpRequest) -> HttpResponse:
    """Ask for a code after the password; rotate the session key on success."""
    person = _person(request)
    factor = factor_of(person)
    if factor is None or needs_factor(person, request.session) != "verify":
        return HttpResponseRedirect(reverse("admin:index"))
    status = 200
    if request.method == "POST":
        try:
            verify_factor(user=person, code=_code(request))
        except DomainError as error:
            messages.error(request, error.text)
            status = error.status
        else:
            request.session.cycle_key()
            request.session[SESSION_KEY] = factor.pk
            return HttpResponseRedirect(reverse("admin:index"))
    return _page(request, "verify", _("Two-factor authentication"), status=status)


@never_cache
def add(request: HttpRequest) -> HttpResponse:
    """Show the secret; after a valid code, show the recovery codes."""
    person = _person(request)
    if (known := factor_of(person)) is not None:
        return _page(
            request, "have", _("Two-factor authentication"), left=len(known.recovery_digests)
        )
    factor = begin_factor(user=person)
    if request.method == "POST":
        try:
            codes = confirm_factor(user=person, code=_code(request))
        except DomainError as error:
            messages.error(request, error.text)
        else:
            request.session.cycle_key()
            request.session[SESSION_KEY] = factor.pk
            return _page(request, "codes", _("Recovery codes"), codes=codes)
    drawn = segno.make(address_of(factor), error="m").svg_inline(scale=5, border=2, omitsize=True)
    # Safe: generated from our own text only.
    picture = mark_safe(drawn)  # noqa: S308
    return _page(
        request, "add", _("Two-factor authentication"), picture=picture, secret=str(factor.secret)
    )


@require_POST
def remove(request: HttpRequest) -> HttpResponse:
    """Remove the user's own factor, in a session that has been verified."""
    person = _person(request)
    try:
        verify_factor(user=person, code=_code(request))
        remove_factor(actor=person, user=person)
    except DomainError as error:
        messages.error(request, error.text)
    else:
        messages.success(request, _("Two-factor authentication has been removed."))
    return HttpResponseRedirect(reverse("access:second-factor-add"))


def _person(request: HttpRequest) -> User:
    person = person_of(request)
    if person is None:
        raise Http404
    return person


def _code(request: HttpRequest) -> str:
    return request.POST.get("code", "")[:MAX_CODE]


def _page(
    request: HttpRequest, part: str, title: str, *, status: int = 200, **more: Any
) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": title, "part": part, **more}
    # The admin's navigation is hidden until the code is verified.
    context |= {"has_permission": False, "sidebar_navigation": []} if part == "verify" else {}
    return TemplateResponse(request, "access/second_factor.html", context, status=status)
