"""Accounts: who may log in, as what, and by which password."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from apps.access.errors import BadPassword, WrongPassword
from apps.access.models import User
from apps.access.services.audit import changes, record, snapshot
from apps.access.services.people import keep_one_admin, password_was_set
from apps.access.services.sessions import end_sessions


@transaction.atomic
def create_account(*, actor: User | None, values: Mapping[str, Any]) -> tuple[User, str]:
    """Create a person; return the user and a one-time password, which is stored nowhere.

    Raises ``ValidationError`` for values that a person cannot have.
    """
    password = secrets.token_urlsafe(12)
    # Who is added is meant to work here; what is seen depends on the roles.
    user = User(**{"is_staff": True, **values})
    user.set_password(password)
    user.must_change_password = True
    user.full_clean(exclude=["password"])
    user.save(force_insert=True)
    record(actor=actor, action="access.create_user", obj=user, after=snapshot(user))
    return user, password


@transaction.atomic
def change_account(*, actor: User | None, user: User, values: Mapping[str, Any]) -> User:
    """Names, address and rights; who is not active can neither log in nor use a token, and has no
    session left to come back to.

    Raises ``LastAdmin``, and ``ValidationError`` as above.
    """
    before = snapshot(user)
    stays_active = values.get("is_active", user.is_active)
    stays_superuser = values.get("is_superuser", user.is_superuser)
    keep_one_admin(user, stays=stays_active and stays_superuser)
    for name, value in values.items():
        setattr(user, name, value)
    user.full_clean(exclude=["password"])
    user.save(update_fields=list(values))
    old, new = changes(before, snapshot(user))
    record(actor=actor, action="access.change_user", obj=user, before=old, after=new)
    if not user.is_active:
        end_sessions(actor=actor, user=user)
    return user


@transaction.atomic
def delete_account(*, actor: User | None, user: User) -> None:
    """With roles and tokens; what they did stays on record. Raises ``LastAdmin``."""
    keep_one_admin(user, stays=False)
    record(actor=actor, action="access.delete_user", obj=user, before=snapshot(user))
    user.delete()


@transaction.atomic
def reset_password(*, actor: User | None, user: User) -> str:
    """A one-time password instead of the one they had; their sessions end."""
    password = secrets.token_urlsafe(12)
    user.set_password(password)
    user.save(update_fields=["password"])
    password_was_set(actor=actor, user=user)
    # Also where a person resets their own password.
    User.objects.filter(pk=user.pk).update(must_change_password=True)
    user.must_change_password = True
    return password


@transaction.atomic
def choose_password(*, user: User, old: str, new: str) -> None:
    """Their own, in the place of the one they know; their sessions end.

    Raises ``WrongPassword``, and ``BadPassword`` for one that is easy to guess.
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
