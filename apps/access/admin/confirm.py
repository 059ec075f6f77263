"""Actions that change something answer to POST only; a link to them asks first.

Unfold calls the buttons of a page by GET, which any foreign page could make a browser do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

P = ParamSpec("P")
Page = Callable[Concatenate[Any, HttpRequest, P], HttpResponse]


def confirmed(question: Any, *, verb: Any) -> Callable[[Page[P]], Page[P]]:
    """Show ``question`` with a button ``verb`` on GET, run the action on POST (CSRF checked)::

    @action(description=_("Stop"), url_path="stop")
    @confirmed(_("Stop this run?"), verb=_("Stop"))
    @shows_refusals
    def stop(self, request, object_id): ...
    """

    def decorate(page: Page[P]) -> Page[P]:
        @wraps(page)
        def answer(
            self: Any, request: HttpRequest, *args: P.args, **kwargs: P.kwargs
        ) -> HttpResponse:
            if request.method == "POST":
                return page(self, request, *args, **kwargs)
            opts = self.opts
            object_id = kwargs.get("object_id")
            back = (
                reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist")
                if object_id is None
                else reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[object_id])
            )
            context = {
                **self.admin_site.each_context(request),
                "title": verb,
                "question": question,
                "verb": verb,
                "back": back,
                "opts": opts,
            }
            return TemplateResponse(request, "admin/access/confirm.html", context)

        return cast("Page[P]", answer)

    return decorate
