"""Request ids, content security policy, and enforcement of password change and second factor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, cast

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve, reverse
from django.utils.decorators import sync_and_async_middleware
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import current_request_id, request_id_scope, usable_request_id
from apps.access.services.second_factor import needs_factor
from apps.access.services.sessions import SessionStore

HEADER = "X-Request-Id"
POLICY_HEADER: Final = "Content-Security-Policy"
# All resources come from this server. The admin theme needs two exceptions: Alpine evaluates
# expressions in attributes, and style attributes set widths and colours. Inline scripts are
# blocked, so that unescaped text in a page still could not run.
POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_Answer = Callable[[HttpRequest], HttpResponseBase]
_AsyncAnswer = Callable[[HttpRequest], Awaitable[HttpResponseBase]]


@sync_and_async_middleware
def RequestIdMiddleware(get_response: _Answer | _AsyncAnswer) -> _Answer | _AsyncAnswer:
    """Take ``X-Request-Id`` from the request if it is well formed, else generate one; return it."""
    if iscoroutinefunction(get_response):
        answer_async = cast(_AsyncAnswer, get_response)

        async def answer_with_id(request: HttpRequest) -> HttpResponseBase:
            request_id = usable_request_id(request.headers.get(HEADER))
            with request_id_scope(request_id):
                response = await answer_async(request)
            response.headers[HEADER] = request_id
            return response

        return answer_with_id

    answer = cast(_Answer, get_response)

    def answer_with_id_sync(request: HttpRequest) -> HttpResponseBase:
        request_id = usable_request_id(request.headers.get(HEADER))
        with request_id_scope(request_id):
            response = answer(request)
        response.headers[HEADER] = request_id
        return response

    return answer_with_id_sync


@sync_and_async_middleware
def ContentSecurityPolicyMiddleware(get_response: _Answer | _AsyncAnswer) -> _Answer | _AsyncAnswer:
    """Set ``POLICY`` on every response without a policy of its own."""
    if iscoroutinefunction(get_response):
        answer_async = cast(_AsyncAnswer, get_response)

        async def answer_with_policy(request: HttpRequest) -> HttpResponseBase:
            return _with_policy(await answer_async(request))

        return answer_with_policy

    answer = cast(_Answer, get_response)
    return lambda request: _with_policy(answer(request))


def _with_policy(response: HttpResponseBase) -> HttpResponseBase:
    # Django's debug pages use inline scripts.
    if not (settings.DEBUG and response.status_code in (404, 500)):
        response.headers.setdefault(POLICY_HEADER, POLICY)
    return response


class PasswordChangeMiddleware(MiddlewareMixin):
    """Restrict users with a one-time password to the page that changes it.

    Applies to sessions; requests with an API token are not authenticated at this point.
    """

    allowed = frozenset(
        {
            "password_change",
            "admin:password_change",
            "admin:logout",
            "admin:jsi18n",
            "admin:login",
            "set_language",
            # A user with a second factor gives a code first, see below.
            "access:second-factor",
        }
    )

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """Redirect pages to the password form and refuse REST calls."""
        user = request.user
        if not isinstance(user, User) or not user.must_change_password:
            return None
        try:
            if resolve(request.path_info).view_name in self.allowed:
                return None
        except Resolver404:
            return None
        if request.path_info.startswith("/api/"):
            body = {
                "code": "password_change_required",
                "detail": _("This password is temporary: set your own first."),
                "fields": {},
                "request_id": current_request_id(),
            }
            return JsonResponse(body, status=403)
        return HttpResponseRedirect(reverse("admin:password_change"))


class SecondFactorMiddleware(MiddlewareMixin):
    """Require the second factor after the password, where there is one.

    It precedes even a password change: otherwise an attacker with the password, but without a code,
    could lock the user out. A user who has yet to set up a factor changes the password first.
    Applies to sessions; an API token was created after both.
    """

    allowed = frozenset(
        {"access:second-factor", "admin:logout", "admin:jsi18n", "admin:login", "set_language"}
    )
    to_enrol = PasswordChangeMiddleware.allowed | {"access:second-factor-add"}

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """Redirect pages to the form and refuse REST calls."""
        user = request.user
        if not isinstance(user, User) or not user.is_staff:
            return None
        missing = needs_factor(user, request.session)
        if not missing:
            return None
        allowed = self.to_enrol if missing == "enrol" else self.allowed
        try:
            if resolve(request.path_info).view_name in allowed:
                return None
        except Resolver404:
            return None
        if request.path_info.startswith("/api/"):
            body = {
                "code": "second_factor_required",
                "detail": _("Enter the code of your authenticator app first."),
                "fields": {},
                "request_id": current_request_id(),
            }
            return JsonResponse(body, status=403)
        page = "access:second-factor-add" if missing == "enrol" else "access:second-factor"
        return HttpResponseRedirect(reverse(page))


class LastSeenMiddleware(MiddlewareMixin):
    """Extend the session on activity; automatic refreshes of pages do not count."""

    def process_request(self, request: HttpRequest) -> None:
        """Record the activity, at most once a minute."""
        if request.headers.get("X-Requested-With") == "XMLHttpRequest":
            return
        if request.user.is_authenticated and isinstance(request.session, SessionStore):
            request.session.note_seen()
