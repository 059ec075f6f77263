"""Account page: sessions, tokens, second factor, password, language."""

from __future__ import annotations

from typing import Final, cast

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from apps.access.errors import DomainError
from apps.access.models import ApiToken, User
from apps.access.services.confirmation import ask_first
from apps.access.services.second_factor import factor_of, must_have_factor
from apps.access.services.sessions import end_session, end_sessions, sessions_of

# Most tokens shown; all are on their own list.
SHOWN_TOKENS: Final = 20


@never_cache
@require_GET
def show(request: HttpRequest) -> HttpResponse:
    person = _person(request)
    now = timezone.now()
    tokens = ApiToken.objects.filter(user=person, revoked_at=None).order_by("-id")
    factor = factor_of(person)
    context = {
        **admin.site.each_context(request),
        "title": _("My account"),
        "person": person,
        "sessions": sessions_of(person, this=request.session.session_key),
        "tokens": [token for token in tokens[:SHOWN_TOKENS] if token.usable(now)],
        "factor": factor,
        "codes_left": 0 if factor is None else len(factor.recovery_digests),
        "must_have_factor": must_have_factor(person),
    }
    return TemplateResponse(request, "access/account.html", context)


@require_POST
def end(request: HttpRequest) -> HttpResponse:
    """End a session of the user; ending the current one logs out."""
    person = _person(request)
    try:
        end_session(actor=person, user=person, handle=request.POST.get("session", ""))
    except DomainError as error:
        messages.error(request, error.text)
    else:
        messages.success(request, _("The session has ended."))
    return HttpResponseRedirect(reverse("access:account"))


@require_POST
def end_others(request: HttpRequest) -> HttpResponse:
    """End all other sessions of the user after a confirmation."""
    person, back = _person(request), reverse("access:account")
    others = [
        session
        for session in sessions_of(person, this=request.session.session_key)
        if not session.is_this
    ]
    confirmation = ask_first(
        request,
        verb=_("End all others"),
        loss=_("Every other browser has to log in again."),
        ids=[other.handle for other in others],
        names=[f"{other.address} {other.agent}" for other in others],
        back=back,
        final=False,
    )
    if confirmation is not None:
        return confirmation
    count = end_sessions(actor=person, user=person, but=request.session.session_key)
    text = ngettext("%(count)d session has ended.", "%(count)d sessions have ended.", count)
    messages.success(request, text % {"count": count})
    return HttpResponseRedirect(back)


def _person(request: HttpRequest) -> User:
    """Return the logged-in user; the admin site has refused anonymous requests."""
    return cast(User, request.user)
