"""Routes without a trailing slash; with one they work too, but are not in the schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver
from django.urls.resolvers import RegexPattern, RoutePattern
from rest_framework.routers import SimpleRouter

View = Callable[..., HttpResponseBase]


class _SlashlessRegex(RegexPattern):
    """Regex pattern that also accepts a trailing slash."""

    def match(self, path: str) -> Any:
        return super().match(path) or super().match(path.removesuffix("/"))


class _SlashlessRoute(RoutePattern):
    """``path()`` pattern that also accepts a trailing slash."""

    def match(self, path: str) -> Any:
        return super().match(path) or super().match(path.removesuffix("/"))


class ApiRouter(SimpleRouter):
    """DRF router without trailing slashes. Ids are digits, so that ``/runs/abc`` is a 404."""

    def __init__(self) -> None:
        super().__init__(trailing_slash=False)

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Return the routes of all registered view sets."""
        patterns: list[URLPattern | URLResolver] = []
        for url in cast("list[URLPattern]", super().get_urls()):
            pattern = _SlashlessRegex(url.pattern.regex.pattern, name=url.name, is_endpoint=True)
            patterns.append(URLPattern(pattern, url.callback, url.default_args, url.name))
        return patterns


def api_path(route: str, view: View, *, name: str) -> URLPattern:
    """``django.urls.path`` for a single REST view; ``route`` has no trailing slash."""
    pattern = _SlashlessRoute(route, name=name, is_endpoint=True)
    return URLPattern(pattern, view, None, name)
