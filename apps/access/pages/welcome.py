"""Page of a one-time link to set a user name and a password.

The key is in the fragment of the URL, so no server or proxy logs it; a script submits it. Without
scripts it can be pasted.
"""

from __future__ import annotations

from django.contrib import admin, messages
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from apps.access.errors import BadInvitation, LinkNotValid
from apps.access.models import SetupLink
from apps.access.services.links import MAX_KEY, open_link, use_link

BACKEND = "apps.access.services.login_backend.SessionBackend"
MAX_PASSWORD = 4096


@sensitive_post_parameters("key", "password", "again")
@never_cache
@csrf_protect
@require_http_methods(["GET", "HEAD", "POST"])
def welcome(request: HttpRequest) -> HttpResponse:
    """Ask for the key, then for a name and a password, then log in."""
    if request.method != "POST":
        return _page(request, None)
    # Accept a pasted link as well as a key.
    key = request.POST.get("key", "").rpartition("#")[2].strip()[:MAX_KEY]
    try:
        link = open_link(key)
        if "password" not in request.POST:
            return _page(request, link, key=key)
        password = request.POST["password"][:MAX_PASSWORD]
        username = request.POST.get("username", "").strip()[:150]
        if password != request.POST.get("again", ""):
            wrong = {"again": [_("The two passwords are not the same.")]}
            return _page(request, link, key=key, username=username, wrong=wrong, status=422)
        user = use_link(key=key, username=username, password=password)
    except LinkNotValid as error:
        messages.error(request, error.text)
        return _page(request, None, status=410)
    except BadInvitation as error:
        wrong = {name: [str(text) for text in texts] for name, texts in error.fields.items()}
        return _page(request, link, key=key, username=username, wrong=wrong, status=422)
    login(request, user, backend=BACKEND)
    messages.success(request, _("Welcome. This is your account now."))
    return HttpResponseRedirect(reverse("admin:index"))


def _page(
    request: HttpRequest,
    link: SetupLink | None,
    *,
    key: str = "",
    username: str = "",
    wrong: dict[str, list[str]] | None = None,
    status: int = 200,
) -> HttpResponse:
    context = {
        **admin.site.each_context(request),
        "title": _("Welcome"),
        "has_permission": False,
        "sidebar_navigation": [],
        "link": link,
        "key": key,
        "username": username,
        "wrong": wrong or {},
    }
    return TemplateResponse(request, "access/welcome.html", context, status=status)
