"""Roles of users, and rules of superusers and passwords."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Model

from apps.access.errors import LastAdmin
from apps.access.models import LoginSession, Membership, SetupLink, User
from apps.access.services.audit import record
from apps.access.states import Role


@transaction.atomic
def set_role(
    *, actor: User | None, user: User, project: Model, role: Role | None
) -> Membership | None:
    """Set the role of ``user`` in ``project``; None removes it. Idempotent."""
    current = (
        Membership.objects.select_for_update().filter(user=user, project_id=project.pk).first()
    )
    before = None if current is None else {"user_id": user.pk, "role": current.role}
    if role is None:
        if current is not None:
            record(
                actor=actor,
                action="access.remove_member",
                obj=current,
                project=project,
                before=before,
            )
            current.delete()
        return None
    if current is not None and current.role == role:
        return current
    membership, _created = Membership.objects.update_or_create(
        user=user, project_id=project.pk, defaults={"role": role}
    )
    record(
        actor=actor,
        action="access.set_role",
        obj=membership,
        project=project,
        before=before,
        after={"user_id": user.pk, "role": str(role)},
    )
    return membership


def keep_one_admin(user: User, *, stays: bool) -> None:
    """Raise ``LastAdmin`` if ``user`` is the only active superuser and would not stay one.

    Locks the superusers until the end of the caller's transaction.
    """
    if stays:
        return
    admins = User.objects.filter(is_superuser=True, is_active=True).order_by("pk")
    if list(admins.select_for_update().values_list("pk", flat=True)) == [user.pk]:
        raise LastAdmin


@transaction.atomic
def password_was_set(*, actor: User | None, user: User, but: str | None = None) -> None:
    """Record a new password; a user must change one that someone else has set.

    Ends all sessions of the user except the one with the key ``but``, and invalidates setup links.
    """
    by_owner = actor is not None and actor.pk == user.pk
    User.objects.filter(pk=user.pk).update(must_change_password=not by_owner)
    LoginSession.objects.filter(user=user).exclude(session_key=but or "").delete()
    SetupLink.objects.filter(user=user, used_at=None).delete()
    record(actor=actor, action="access.set_password", obj=user)
