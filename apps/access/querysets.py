"""Who sees which rows: everything derives from the project, by one attribute."""

from __future__ import annotations

from typing import Any, Generic, NoReturn, Protocol, Self, TypeVar, cast

from django.db import models
from django.db.models import Q

from apps.access.errors import AuditIsAppendOnly
from apps.access.states import Role

M_co = TypeVar("M_co", bound=models.Model, covariant=True)


class SeesProjects(Protocol):
    """The part of a user that decides what is visible (``access.User`` has it)."""

    is_active: bool

    def project_q(self, path: str, *, at_least: Role) -> Q:
        """The condition on ``path`` that keeps only projects where the user has the role."""


class VisibleQuerySet(models.QuerySet[M_co], Generic[M_co]):
    """Base of the querysets of everything that belongs to a project.

    A subclass names the way to the project and nothing else::

        class RunQuerySet(VisibleQuerySet["Run"]):
            project_path = "job__project"

    The way must not cross a to-many relation (rows would repeat). Rows whose project is null
    are seen only by those who see everything.
    """

    project_path: str = "project"
    # Foreign keys to what can be deleted and restored: rows are hidden together with it.
    hidden_with: tuple[str, ...] = ()

    def visible_to(self, user: object, at_least: Role = Role.VIEWER) -> Self:
        """Rows of projects where ``user`` has the role or a higher one; none for strangers.

        The memberships are a subquery: no extra query, and a role that was taken away takes
        effect at once even for a user object that lives long, as in a websocket.
        """
        if not callable(getattr(user, "project_q", None)):
            return self.none()
        person = cast(SeesProjects, user)
        if not person.is_active:
            return self.none()
        return self.filter(self._seen_by(person, at_least)).exclude(self._hidden())

    def _seen_by(self, person: SeesProjects, at_least: Role) -> Q:
        """What belongs to projects where the person has the role; empty for who sees all."""
        return person.project_q(self.project_path, at_least=at_least)

    def _hidden(self) -> Q:
        """What belongs to something deleted; subqueries, for a join would cost every list more."""
        condition = Q()
        for path in (self.project_path, *self.hidden_with):
            # Of a project itself, and of a job, the manager says which rows are hidden.
            if path != "pk":
                condition |= Q(**{f"{path}__in": deleted_rows(self.model, path)})
        return condition or Q(pk__in=[])


class LivingManager(models.Manager[M_co], Generic[M_co]):
    """Without what was deleted and may be restored; made with ``from_queryset``."""

    def get_queryset(self) -> Any:
        """Rows that are not deleted."""
        return super().get_queryset().filter(deleted_at=None)


def deleted_rows(model: type[models.Model], path: str) -> models.QuerySet[Any]:
    """Keys of what ``path`` leads to from ``model``, of those that are deleted."""
    target: Any = model
    for step in path.split("__"):
        target = target._meta.get_field(step).remote_field.model
    return cast(
        "models.QuerySet[Any]",
        target._base_manager.filter(deleted_at__isnull=False).order_by().values("pk"),
    )


class ProjectOwnedQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """``VisibleQuerySet`` for models with a plain ``project`` foreign key; also for access."""


class MembershipQuerySet(ProjectOwnedQuerySet[M_co], Generic[M_co]):
    """Roles of people in projects."""

    def living(self) -> Self:
        """In projects that are not deleted."""
        return self.filter(project__deleted_at=None)


class OwnQuerySet(models.QuerySet[M_co], Generic[M_co]):
    """Of what belongs to one person and to no project."""

    def visible_to(self, user: object) -> Self:
        """Their own; a token that is narrowed to a project sees none."""
        if not callable(getattr(user, "project_q", None)) or not getattr(user, "is_active", False):
            return self.none()
        token = getattr(user, "acting_token", None)
        if token is not None and token.project_id is not None:
            return self.none()
        return self.filter(user_id=getattr(user, "pk", None))


class AuditQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """The audit trail only grows: bulk changes are refused here, single ones by the model."""

    def _hidden(self) -> Q:
        # What was done to something stays on record when it is deleted.
        return Q(pk__in=[])

    def update(self, **kwargs: Any) -> NoReturn:
        """Refused."""
        raise AuditIsAppendOnly

    def delete(self) -> NoReturn:
        """Refused."""
        raise AuditIsAppendOnly

    def bulk_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        raise AuditIsAppendOnly
