"""Visibility of rows: each queryset names the path to its project."""

from __future__ import annotations

from typing import Any, Generic, NoReturn, Protocol, Self, TypeVar, cast

from django.db import models
from django.db.models import Q

from apps.access.errors import AuditIsAppendOnly
from apps.access.states import Role

M_co = TypeVar("M_co", bound=models.Model, covariant=True)


class SeesProjects(Protocol):
    """Protocol of users for visibility checks, implemented by ``access.User``."""

    is_active: bool

    def project_q(self, path: str, *, at_least: Role) -> Q:
        """Condition on ``path`` for projects where the user has the role."""


class VisibleQuerySet(models.QuerySet[M_co], Generic[M_co]):
    """Base of querysets of rows that belong to a project.

    A subclass names only the path to the project::

        class RunQuerySet(VisibleQuerySet["Run"]):
            project_path = "job__project"

    The path must not cross a to-many relation (rows would repeat). Rows whose project is null
    are seen only by those who see everything.
    """

    project_path: str = "project"
    # Foreign keys to soft-deletable objects: rows are hidden together with them.
    hidden_with: tuple[str, ...] = ()

    def visible_to(self, user: object, at_least: Role = Role.VIEWER) -> Self:
        """Rows of projects where ``user`` has the role or a higher one; none for anonymous users.

        Memberships are a subquery: no extra query, and a removed role takes effect at once, even
        for a user object that lives long, as in a websocket.
        """
        if not callable(getattr(user, "project_q", None)):
            return self.none()
        person = cast(SeesProjects, user)
        if not person.is_active:
            return self.none()
        return self.filter(self._seen_by(person, at_least)).exclude(self._hidden())

    def _seen_by(self, person: SeesProjects, at_least: Role) -> Q:
        """Condition for projects where the user has the role; empty for users who see all."""
        return person.project_q(self.project_path, at_least=at_least)

    def _hidden(self) -> Q:
        """Exclude rows of deleted objects; by subqueries, since joins would slow every list."""
        condition = Q()
        for path in (self.project_path, *self.hidden_with):
            # The managers of projects and jobs hide deleted rows themselves.
            if path != "pk":
                condition |= Q(**{f"{path}__in": deleted_rows(self.model, path)})
        return condition or Q(pk__in=[])


class LivingManager(models.Manager[M_co], Generic[M_co]):
    """Manager without deleted rows; created with ``from_queryset``."""

    def get_queryset(self) -> Any:
        """Rows that are not deleted."""
        return super().get_queryset().filter(deleted_at=None)


def deleted_rows(model: type[models.Model], path: str) -> models.QuerySet[Any]:
    """Primary keys of deleted objects that ``path`` leads to from ``model``."""
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
    """Memberships of users in projects."""

    def living(self) -> Self:
        """Memberships in projects that are not deleted."""
        return self.filter(project__deleted_at=None)


class OwnQuerySet(models.QuerySet[M_co], Generic[M_co]):
    """Base of querysets of rows that belong to a user and to no project."""

    def visible_to(self, user: object) -> Self:
        """The user's own rows; none through a token of one project."""
        if not callable(getattr(user, "project_q", None)) or not getattr(user, "is_active", False):
            return self.none()
        token = getattr(user, "acting_token", None)
        if token is not None and token.project_id is not None:
            return self.none()
        return self.filter(user_id=getattr(user, "pk", None))


class AuditQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Append-only audit trail: bulk changes are refused here, single ones by the model."""

    def _hidden(self) -> Q:
        # Records outlive their object.
        return Q(pk__in=[])

    def update(self, **kwargs: Any) -> NoReturn:
        """Raise ``AuditIsAppendOnly``."""
        raise AuditIsAppendOnly

    def delete(self) -> NoReturn:
        """Raise ``AuditIsAppendOnly``."""
        raise AuditIsAppendOnly

    def bulk_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise ``AuditIsAppendOnly``."""
        raise AuditIsAppendOnly
