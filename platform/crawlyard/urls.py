"""URLs of the web process.

An app is included when it has ``api/urls.py`` (REST, below /api/v1/) or ``urls.py`` (pages).
"""

from __future__ import annotations

from typing import Final, cast

from django.apps import AppConfig, apps
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver, include, path
from django.utils.module_loading import module_has_submodule
from django.views.generic import RedirectView
from django.views.i18n import set_language
from drf_spectacular.views import (
    SpectacularAPIView,
    SpectacularRedocView,
    SpectacularSwaggerSplitView,
)

from apps.access.api.routers import api_path
from apps.access.middleware import POLICY, POLICY_HEADER
from apps.access.pages import OwnPasswordChange

ICON: Final = f"{settings.STATIC_URL}crawlyard.svg"

handler400 = "apps.access.api.errors.bad_request"
handler403 = "apps.access.api.errors.permission_denied"
handler404 = "apps.access.api.errors.page_not_found"
handler500 = "apps.access.api.errors.server_error"


class LoginFirst:
    """Redirect anonymous visitors of the schema viewers to the login page."""

    def dispatch(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        return cast(HttpResponseBase, super().dispatch(request, *args, **kwargs))  # type: ignore[misc]


class Swagger(LoginFirst, SpectacularSwaggerSplitView):
    """Interactive viewer of the schema, without inline scripts."""


class Redoc(LoginFirst, SpectacularRedocView):
    """Viewer of the schema, without resources of other servers."""

    template_name = "access/redoc.html"

    def dispatch(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        """Allow the worker that the search needs; the remote logo stays blocked."""
        response = super().dispatch(request, *args, **kwargs)
        response.headers[POLICY_HEADER] = f"{POLICY}; worker-src blob:"
        return response


def _own_apps() -> list[AppConfig]:
    return [config for config in apps.get_app_configs() if config.name.startswith("apps.")]


def _rest() -> list[URLPattern | URLResolver]:
    patterns: list[URLPattern | URLResolver] = [
        api_path("schema", SpectacularAPIView.as_view(), name="schema"),
        api_path("docs", Swagger.as_view(url_name="schema"), name="docs"),
        api_path("redoc", Redoc.as_view(url_name="schema"), name="redoc"),
    ]
    for app in _own_apps():
        if module_has_submodule(app.module, "api.urls"):
            patterns.append(path("", include(f"{app.name}.api.urls")))
    return patterns


def _pages() -> list[URLResolver]:
    return [
        path("", include(f"{app.name}.urls"))
        for app in _own_apps()
        if module_has_submodule(app.module, "urls")
    ]


urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include(_rest())),
    *_pages(),
    # Before the admin's view: this one ends a one-time password and writes the audit trail.
    path("admin/password_change/", OwnPasswordChange.as_view(), name="password_change"),
    path("admin/", admin.site.urls),
    path("i18n/setlang", set_language, name="set_language"),
    # Browsers request this on pages without an icon, such as the schema viewers.
    path("favicon.ico", RedirectView.as_view(url=ICON), name="favicon"),
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
]
