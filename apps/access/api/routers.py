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
        found: list[URLPattern | URLResolver] = []
        for each in cast("list[URLPattern]", super().get_urls()):
            pattern = _SlashlessRegex(each.pattern.regex.pattern, name=each.name, is_endpoint=True)
            found.append(URLPattern(pattern, each.callback, each.default_args, each.name))
        return found


def api_path(route: str, view: View, *, name: str) -> URLPattern:
    """``django.urls.path`` for a single REST view; ``route`` has no trailing slash."""
    pattern = _SlashlessRoute(route, name=name, is_endpoint=True)
    return URLPattern(pattern, view, None, name)
