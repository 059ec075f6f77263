"""Save and delete frontiers through the same services as REST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from apps.access.admin.base import person_of, projects_of, shows_refusals
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.seeds import services
from apps.seeds.admin.refusals import REFUSALS, text_of
from apps.seeds.admin.scope import FrontierScope
from apps.seeds.models import Frontier


class FrontierWrites(FrontierScope):
    """Write methods of the frontier admin."""

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save through the service, which writes the audit record and rejects rules that need a
        move.
        """
        if obj.project_id not in projects_of(request, Role.EDITOR):
            raise PermissionDenied
        person = person_of(request)
        if change:
            values = {name: getattr(obj, name) for name in form.changed_data}
            if values:
                stored = Frontier.objects.get(pk=obj.pk)
                services.update_frontier(actor=person, frontier=stored, values=values)
            return
        made = services.create_frontier(actor=person, values=form.cleaned_data)
        obj.pk, obj._state.adding = made.pk, False

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Do nothing: the form has no related objects, and the service has recorded the change."""

    @shows_refusals
    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Delete outside a transaction: the seed service must see that the frontier is frozen."""
        given = {"object_id": args[0]} if args else {}
        given = {"extra_context": None} | given | kwargs
        answer: HttpResponse = self._delete_view(request, **given)
        return answer

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete a frontier that has no seeds; the seed service is asked for their number."""
        try:
            services.delete_frontier(actor=person_of(request), frontier=obj)
        except DomainError:
            raise
        except REFUSALS as error:
            raise DomainError(text_of(error)) from error

    def get_deleted_objects(
        self, objs: Sequence[Any] | QuerySet[Any], request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """List the frontiers alone, without their reports and operations."""
        named = [f"{frontier._meta.verbose_name}: {frontier}" for frontier in objs]
        counts = {str(self.model._meta.verbose_name_plural): len(named)}
        denied = {
            str(frontier._meta.verbose_name)
            for frontier in objs
            if not self.has_delete_permission(request, frontier)
        }
        return named, counts, denied, []
