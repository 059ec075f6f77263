"""Helpers of the views: errors of stores as HTTP answers, and the biz in a URL."""

from __future__ import annotations

import re
from typing import Any

from django.http import Http404
from django.utils.translation import gettext as _
from rest_framework import status
from rest_framework.response import Response
from rest_framework.views import set_rollback

from apps.access.api.errors import RETRY_AFTER_SECONDS, error_body
from apps.access.services import project_ids
from apps.access.states import Role
from apps.requeststore.engine.biz import BIZ_ID
from apps.requeststore.engine.errors import (
    InvalidRequest,
    RequestStoreError,
    RequestStoreUnavailable,
    TooLarge,
    UnknownBiz,
    UnknownNode,
)
from apps.requeststore.services.store import BoundBiz, shared_request_store


class StoreErrorsMixin:
    """Mixin of views: turns errors of the store into the API's error format."""

    def handle_exception(self, exc: Exception) -> Response:
        """Return the answer to any exception of a view."""
        answer = answer_to(exc)
        if answer is None:
            other: Response = super().handle_exception(exc)  # type: ignore[misc]  # of the view
            return other
        set_rollback()
        answer.exception = True
        return answer


def answer_to(error: Exception) -> Response | None:
    """Return the HTTP answer to an error of the store; None for other errors."""
    if isinstance(error, RequestStoreUnavailable | UnknownNode):
        text = _("The request store is unreachable. Try again.")
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        return Response(error_body(RequestStoreUnavailable.code, text), status=503, headers=headers)
    if isinstance(error, UnknownBiz):
        text = _("This project has no such request group.")
        return Response(error_body("not_found", text), status=404)
    if isinstance(error, TooLarge | InvalidRequest):
        http_status = status.HTTP_422_UNPROCESSABLE_ENTITY
        return Response(error_body(error.code, str(error)), status=http_status)
    if isinstance(error, RequestStoreError):
        return Response(error_body(error.code, str(error)), status=409)
    return None


def seen_bizzes(user: object, role: Role = Role.VIEWER) -> list[BoundBiz]:
    """Return the bizzes of projects where the user has the role, by project and name."""
    projects = project_ids(user, at_least=role)
    visible = [biz for biz in shared_request_store().bizzes() if biz.project_id in projects]
    return sorted(visible, key=lambda each: (each.project_id, each.name))


def biz_named(user: object, text: str) -> BoundBiz:
    """Return the biz of a key such as ``7.news``. Raises ``Http404``, also for an invisible
    one.
    """
    if not re.fullmatch(BIZ_ID, text):
        raise Http404
    number, _dot, name = text.partition(".")
    if int(number) not in project_ids(user, at_least=Role.VIEWER):
        raise Http404
    try:
        return shared_request_store().biz(int(number), name)
    except UnknownBiz:
        raise Http404 from None


def biz_id(bound: BoundBiz) -> str:
    """Return ``7.news``."""
    return f"{bound.project_id}.{bound.name}"


def person_label(view: Any) -> str:
    """Return the user as ``rest:NAME``, for histories and leases of requests."""
    return f"rest:{view.person.get_username()}"
