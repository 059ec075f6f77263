"""Sign-in at an OpenID Connect provider: the way there, and its answer."""

from __future__ import annotations

import logging
from typing import Final

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.access.errors import SignInRefused
from apps.access.services.sign_on import ProviderAway, Refused, sign_in
from apps.access.services.sign_on.oidc import OidcProvider

logger = logging.getLogger(__name__)
BACKEND: Final = "apps.access.services.login_backend.SessionBackend"
_KEPT: Final = "_sign_on"


@never_cache
@require_GET
def start(request: HttpRequest) -> HttpResponse:
    """Redirect to the sign-in page of the provider."""
    if not settings.OIDC_URL:
        raise Http404
    answer_url = f"{settings.PUBLIC_URL}{reverse('access:sign-on-answer')}"
    try:
        url, kept = OidcProvider().start(answer_url)
    except ProviderAway as error:
        return _failed(request, error)
    request.session[_KEPT] = kept | {"next": request.GET.get("next", "")}
    return HttpResponseRedirect(url)


@never_cache
@require_GET
def answer(request: HttpRequest) -> HttpResponse:
    """Sign in by the code of the provider's answer; each answer counts once."""
    kept = request.session.pop(_KEPT, None)
    state, code = request.GET.get("state", ""), request.GET.get("code", "")
    if not settings.OIDC_URL or kept is None or state != kept["state"]:
        messages.error(request, _("The sign-in has expired. Try again."))
        return HttpResponseRedirect(reverse("admin:login"))
    if not code:
        return _failed(request, Refused(request.GET.get("error", "")[:100]))
    try:
        user = sign_in(OidcProvider().finish(code, kept), now=timezone.now())
    except (ProviderAway, Refused) as error:
        return _failed(request, error)
    except SignInRefused as error:
        messages.error(request, error.text)
        return HttpResponseRedirect(reverse("admin:login"))
    login(request, user, backend=BACKEND)
    target = kept["next"]
    if target.startswith("/") and url_has_allowed_host_and_scheme(target, allowed_hosts=None):
        return HttpResponseRedirect(target)
    return HttpResponseRedirect(reverse("admin:index"))


def _failed(request: HttpRequest, error: Exception) -> HttpResponse:
    logger.warning("single sign-on failed: %s", error)
    if isinstance(error, ProviderAway):
        text = _("%(name)s cannot be reached. Local accounts can still log in with a password.")
    else:
        text = _("%(name)s has refused the sign-in.")
    messages.error(request, text % {"name": settings.OIDC_NAME})
    return HttpResponseRedirect(reverse("admin:login"))
