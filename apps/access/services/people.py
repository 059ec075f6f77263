"""People: the first admin, and who has which role where."""

from __future__ import annotations

import secrets

from django.db import IntegrityError, transaction
from django.db.models import Model

from apps.access.errors import LastAdmin
from apps.access.models import Membership, User
from apps.access.services.audit import record
from apps.access.states import Role


def ensure_admin(username: str = "admin") -> str | None:
    """Make a superuser with a one-time password if there is no user at all.

    Returns the password, which is stored nowhere, or None when somebody exists already. After
    the first login nothing is shown but the page that changes the password.
    """
    if User.objects.exists():
        return None
    password = secrets.token_urlsafe(12)
    user = User(username=username, is_staff=True, is_superuser=True)
    user.set_password(password)
    user.must_change_password = True
    try:
        with transaction.atomic():
            user.save(force_insert=True)
            record(actor=None, action="access.create_admin", obj=user)
    except IntegrityError:
        # Another process made it in the same moment, and has the password.
        return None
    return password


@transaction.atomic
def set_role(
    *, actor: User | None, user: User, project: Model, role: Role | None
) -> Membership | None:
    """Give ``user`` that role in ``project``, or none (``role=None``). Idempotent."""
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
    """Raise ``LastAdmin`` if ``user`` is the only active superuser and will not stay one."""
    admins = User.objects.filter(is_superuser=True, is_active=True)
    if not stays and admins.filter(pk=user.pk).exists() and not admins.exclude(pk=user.pk).exists():
        raise LastAdmin


@transaction.atomic
def password_was_set(*, actor: User | None, user: User) -> None:
    """Record a new password; one that somebody else chose must be changed by its owner."""
    by_owner = actor is not None and actor.pk == user.pk
    User.objects.filter(pk=user.pk).update(must_change_password=not by_owner)
    record(actor=actor, action="access.set_password", obj=user)
