"""Users of identity providers: made at the first sign-in, given roles, locked out when gone.

A local account is never touched: a provider decides only about the users that it has made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from django.apps import apps as registry
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from apps.access.errors import LastAdmin, SignInRefused
from apps.access.models import ExternalIdentity, Membership, User
from apps.access.services.accounts import change_account
from apps.access.services.audit import record, snapshot
from apps.access.services.people import set_role
from apps.access.services.sign_on.group_roles import AUDITOR, SUPERUSER, GroupRoles
from apps.access.states import Role

_UNUSABLE: Final = re.compile(r"[^\w.@+-]")


class ProviderAway(Exception):
    """The provider cannot be reached, or answers with a fault of its own: nothing is known."""


class Refused(Exception):
    """The provider does not confirm the account: unknown, blocked, or wrong credentials."""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Account that a provider has confirmed.

    ``groups`` None: the provider did not say, and roles stay as they are. ``tokens`` are used to
    check the account again; they are stored encrypted.
    """

    source: str
    issuer: str
    subject: str
    username: str
    email: str = ""
    first_name: str = ""
    last_name: str = ""
    groups: Sequence[str] | None = ()
    tokens: Mapping[str, str] = field(default_factory=dict)


@transaction.atomic
def sign_in(account: SignedIn, *, now: datetime) -> User:
    """Return the user of a confirmed account: made if there is none, with the roles of its groups.

    Raises ``SignInRefused`` for a user whom an administrator has deactivated, and for a new one
    whose name a local account has.
    """
    identity = _locked_row(account)
    if identity is None:
        identity = _created(account, now)
    user = identity.user
    if not user.is_active:
        if identity.locked_at is None:
            raise SignInRefused
        change_account(actor=None, user=user, values={"is_active": True})
    confirm(identity, account, now=now)
    return user


def confirm(identity: ExternalIdentity, account: SignedIn, *, now: datetime) -> None:
    """Store that the provider has confirmed an account, and apply what it says."""
    identity.secret = json.dumps(dict(account.tokens), sort_keys=True)
    identity.checked_at, identity.locked_at = now, None
    identity.issuer = account.issuer
    identity.save()
    names = {name: getattr(account, name) for name in ("email", "first_name", "last_name")}
    _apply(identity.user, {name: value[:150] for name, value in names.items() if value})
    if account.groups is not None:
        _grant(identity.user, account.groups)


@transaction.atomic
def lock_out(identity: ExternalIdentity, *, now: datetime) -> None:
    """Deactivate a user whom the provider refuses: sessions end, API tokens stop working."""
    identity.checked_at = identity.locked_at = now
    identity.save()
    try:
        change_account(actor=None, user=identity.user, values={"is_active": False})
    except LastAdmin:
        # Somebody must be able to repair the sign-in.
        identity.locked_at = None
        identity.save()
        return
    record(actor=None, action="access.lock_out", obj=identity.user, actor_label=identity.source)


def tokens_of(identity: ExternalIdentity) -> dict[str, str]:
    """Return the tokens of the provider by name."""
    stored: dict[str, str] = json.loads(identity.secret or "{}")
    return stored


def _locked_row(account: SignedIn) -> ExternalIdentity | None:
    rows = ExternalIdentity.objects.select_for_update().select_related("user")
    rows = rows.filter(source=account.source, subject=account.subject)
    if account.source == ExternalIdentity.Source.LDAP:
        # An entry stays the same when the directory gets another address.
        return rows.first()
    return rows.filter(issuer=account.issuer).first()


def _created(account: SignedIn, now: datetime) -> ExternalIdentity:
    name = _UNUSABLE.sub("-", account.username or account.email or account.subject)[:150]
    if User.objects.filter(username=name).exists():
        raise SignInRefused(fields={"username": [name]})
    user = User(username=name, email=account.email, is_staff=True)
    user.set_unusable_password()
    try:
        user.full_clean(exclude=["password"])
    except ValidationError:
        user.email = ""
    user.save(force_insert=True)
    record(
        actor=None,
        action="access.create_user",
        obj=user,
        after=snapshot(user),
        actor_label=account.source,
    )
    return ExternalIdentity(
        user=user,
        source=account.source,
        issuer=account.issuer,
        subject=account.subject,
        checked_at=now,
    )


def _grant(user: User, groups: Sequence[str]) -> None:
    """Set flags and roles as the groups give them; what no group decides stays as it is."""
    mapping = GroupRoles.parse(settings.SSO_ROLES)
    grants = mapping.of(groups)
    flags: dict[str, bool] = {}
    if mapping.decides(SUPERUSER):
        flags["is_superuser"] = grants.is_superuser
    if mapping.decides(AUDITOR):
        flags["is_auditor"] = grants.is_auditor
    _apply(user, flags)
    held = dict(Membership.objects.filter(user=user).values_list("project_id", "role"))
    projects: Any = registry.get_model("projects", "Project")
    for project in projects.objects.filter(slug__in=mapping.projects):
        role: Role | None = grants.roles.get(project.slug)
        if held.get(project.pk) != role:
            set_role(actor=None, user=user, project=project, role=role)


def _apply(user: User, values: Mapping[str, Any]) -> None:
    changed = {name: value for name, value in values.items() if getattr(user, name) != value}
    if not changed:
        return
    try:
        change_account(actor=None, user=user, values=changed)
    except (LastAdmin, ValidationError):
        user.refresh_from_db()
