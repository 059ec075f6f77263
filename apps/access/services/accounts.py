"""User accounts: creation, changes, passwords."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from apps.access.errors import BadPassword, WrongPassword
from apps.access.models import ExternalIdentity, User
from apps.access.services.audit import changes, record, snapshot
from apps.access.services.people import keep_one_admin, password_was_set
from apps.access.services.sessions import end_sessions


@transaction.atomic
def create_account(*, actor: User | None, values: Mapping[str, Any]) -> tuple[User, str]:
    """Create a user; return it with a one-time password, which is stored nowhere.

    Raises ``ValidationError`` for invalid values.
    """
    password = secrets.token_urlsafe(12)
    # Users added here get access to the admin; what is visible depends on the roles.
    user = User(**{"is_staff": True, **values})
    user.set_password(password)
    user.must_change_password = True
    user.full_clean(exclude=["password"])
    user.save(force_insert=True)
    record(actor=actor, action="access.create_user", obj=user, after=snapshot(user))
    return user, password


@transaction.atomic
def change_account(*, actor: User | None, user: User, values: Mapping[str, Any]) -> User:
    """Change names, e-mail address and permissions; deactivating a user ends their sessions and
    disables their tokens.

    Raises ``LastAdmin``, ``ValidationError``.
    """
    before = snapshot(user)
    stays_active = values.get("is_active", user.is_active)
    stays_superuser = values.get("is_superuser", user.is_superuser)
    keep_one_admin(user, stays=stays_active and stays_superuser)
    for name, value in values.items():
        setattr(user, name, value)
    user.full_clean(exclude=["password"])
    user.save(update_fields=list(values))
    if actor is not None and "is_active" in values:
        keep_decision(user)
    old, new = changes(before, snapshot(user))
    record(actor=actor, action="access.change_user", obj=user, before=old, after=new)
    if not user.is_active:
        end_sessions(actor=actor, user=user)
    return user


def keep_decision(user: User) -> None:
    """Let no sign-in at an identity provider undo what an administrator decides about a user."""
    ExternalIdentity.objects.filter(user=user).update(locked_at=None)


@transaction.atomic
def delete_account(*, actor: User | None, user: User) -> None:
    """Delete a user with roles and tokens; audit records stay. Raises ``LastAdmin``."""
    keep_one_admin(user, stays=False)
    record(actor=actor, action="access.delete_user", obj=user, before=snapshot(user))
    user.delete()


@transaction.atomic
def reset_password(*, actor: User | None, user: User) -> str:
    """Set a one-time password and end the user's sessions."""
    password = secrets.token_urlsafe(12)
    user.set_password(password)
    user.save(update_fields=["password"])
    password_was_set(actor=actor, user=user)
    # Also if a user resets their own password.
    User.objects.filter(pk=user.pk).update(must_change_password=True)
    user.must_change_password = True
    return password


@transaction.atomic
def choose_password(*, user: User, old: str, new: str) -> None:
    """Change the user's own password and end their sessions.

    Raises ``WrongPassword`` for a wrong current password, ``BadPassword`` for a weak new one.
    """
    if not user.check_password(old):
        raise WrongPassword
    try:
        validate_password(new, user)
    except ValidationError as error:
        raise BadPassword(fields={"new_password": error.messages}) from error
    user.set_password(new)
    user.save(update_fields=["password"])
    password_was_set(actor=user, user=user)
