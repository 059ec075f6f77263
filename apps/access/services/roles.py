"""Role checks for one project; ``visible_to`` does the same for querysets."""

from __future__ import annotations

from typing import Final, cast

from django.db.models import Model

from apps.access.errors import RoleRequired
from apps.access.models import Membership, User
from apps.access.querysets import VisibleQuerySet
from apps.access.states import Role


class AllProjects:
    """Set that contains every project id: ``7 in ALL`` is true."""

    def __contains__(self, project_id: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = AllProjects()


def project_ids(user: object, *, at_least: Role = Role.VIEWER) -> frozenset[int] | AllProjects:
    """Return the ids of projects where ``user`` has the role or a higher one. At most one query."""
    if not isinstance(user, User) or not user.is_active or _is_beyond(user, at_least):
        return frozenset()
    if user.sees_everything:
        return ALL
    limit = user.acting_token.project_id if user.acting_token is not None else None
    if user.is_superuser or user.is_auditor:
        return frozenset() if limit is None else frozenset({limit})
    held = Membership.objects.living().filter(user_id=user.pk, role__in=Role.at_least(at_least))
    if limit is not None:
        held = held.filter(project_id=limit)
    return frozenset(held.values_list("project_id", flat=True))


def projects_by_role(user: object) -> dict[Role, frozenset[int] | AllProjects]:
    """Return ``project_ids`` for every role. At most one query."""
    if not isinstance(user, User) or user.is_superuser or user.is_auditor or not user.is_active:
        return {role: project_ids(user, at_least=role) for role in Role}
    limit = user.acting_token.project_id if user.acting_token is not None else None
    held = Membership.objects.living().filter(user_id=user.pk)
    if limit is not None:
        held = held.filter(project_id=limit)
    rows = list(held.values_list("project_id", "role"))
    return {
        role: frozenset(project for project, own in rows if own in Role.at_least(role))
        for role in Role
    }


def has_role(user: object, project_id: int | None, role: Role) -> bool:
    """Whether ``user`` has ``role`` or a higher one in that project.

    None means no project: only users who see everything have access.
    """
    if not isinstance(user, User) or not user.is_active or _is_beyond(user, role):
        return False
    if user.sees_everything:
        return True
    if project_id is None:
        return False
    limit = user.acting_token.project_id if user.acting_token is not None else None
    if limit is not None and limit != project_id:
        return False
    if user.is_superuser or user.is_auditor:
        return True
    return (
        Membership.objects.living()
        .filter(user_id=user.pk, project_id=project_id, role__in=Role.at_least(role))
        .exists()
    )


def role_to_read(user: object, role: Role) -> Role:
    """Return the role needed for reading; auditors need no more than viewer."""
    return Role.VIEWER if isinstance(user, User) and user.is_auditor else role


def has_role_somewhere(user: object, role: Role) -> bool:
    """Whether ``user`` has ``role`` or a higher one in any project."""
    return bool(project_ids(user, at_least=role))


def _is_beyond(user: User, role: Role) -> bool:
    return user.is_auditor and role != Role.VIEWER


def require_role(user: object, project_id: int | None, role: Role) -> None:
    """Raise ``RoleRequired`` unless ``has_role``."""
    if not has_role(user, project_id, role):
        raise RoleRequired


def project_id_of(obj: Model) -> int | None:
    """Return the id of the project of ``obj``, by its queryset's ``project_path``.

    None if the model or this row belongs to no project. Follows foreign keys: use
    ``select_related`` for many objects.
    """
    queryset = obj._meta.model._default_manager.all()
    if not isinstance(queryset, VisibleQuerySet):
        return None
    *steps, last = queryset.project_path.split("__")
    holder: object = obj
    for step in steps:
        holder = getattr(holder, step)
        if holder is None:
            return None
    project_id = getattr(holder, "pk" if last == "pk" else f"{last}_id")
    return cast("int | None", project_id)
