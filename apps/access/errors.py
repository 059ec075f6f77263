"""Errors of this app, and ``DomainError``, the base of every app's errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

Text = str | Promise


class DomainError(Exception):
    """A valid request that is refused.

    A subclass sets ``code`` (stable, snake_case, for programs), ``detail`` (translated, for people)
    and ``status``: 409 if the current state forbids it, 422 if the input is invalid. ``fields``
    maps input names to messages. REST returns these; the admin shows ``detail``.
    """

    code: ClassVar[str] = "refused"
    status: ClassVar[int] = 409
    detail: Text = _("This is not possible.")

    def __init__(
        self, detail: Text | None = None, *, fields: Mapping[str, Sequence[Text]] | None = None
    ) -> None:
        if detail is not None:
            self.detail = detail
        self.fields = {name: list(messages) for name, messages in (fields or {}).items()}
        super().__init__(self.detail)

    def __str__(self) -> str:
        return str(self.detail)

    @property
    def text(self) -> str:
        """Detail and field messages in one line, for pages that show a single message."""
        return " ".join(
            [str(self.detail), *(str(m) for messages in self.fields.values() for m in messages)]
        )


class AccessError(DomainError):
    """Base of this app's errors."""


class AuditIsAppendOnly(AccessError):
    """An audit record was about to be changed or deleted."""

    code = "audit_append_only"
    detail = _("Audit records cannot be changed or deleted.")


class RoleRequired(AccessError):
    """The user lacks the role in that project."""

    code = "role_required"
    status = 403
    detail = _("Your role in this project does not allow this.")


class InvalidScopes(AccessError):
    """A requested scope does not exist."""

    code = "invalid_scopes"
    status = 422
    detail = _("These scopes are not valid.")


class ScopeTooWide(AccessError):
    """A token must not create a token with more permissions than its own."""

    code = "scope_too_wide"
    status = 403
    detail = _("A token cannot create a token with more permissions than its own.")


class InvalidNetworks(AccessError):
    """A requested network is not valid CIDR."""

    code = "invalid_networks"
    status = 422
    detail = _("These networks are not valid.")


class TokenExpired(AccessError):
    """The token has expired."""

    code = "token_expired"
    detail = _("This token has expired: make a new one.")


class TokenRevoked(AccessError):
    """The token is revoked."""

    code = "token_revoked"
    detail = _("This token has already been revoked.")


class NotDeleted(AccessError):
    """The object to restore is not deleted."""

    code = "not_deleted"
    detail = _("This is not deleted.")


class FactorExists(AccessError):
    """The user already has a second factor."""

    code = "second_factor_exists"
    detail = _("Two-factor authentication is already set up.")


class NoFactor(AccessError):
    """The user has no second factor."""

    code = "no_second_factor"
    detail = _("Two-factor authentication is not set up.")


class WrongCode(AccessError):
    """The code is wrong, expired or already used."""

    code = "wrong_code"
    status = 422
    detail = _("This code is wrong, has expired, or has been used.")


class TooManyCodes(AccessError):
    """Five wrong codes in a row: further attempts must wait."""

    code = "too_many_codes"
    status = 429
    detail = _("Too many wrong codes: wait five minutes.")


class WrongPassword(AccessError):
    """The current password is wrong."""

    code = "wrong_password"
    status = 422
    detail = _("This is not your password.")


class BadPassword(AccessError):
    """The new password is too weak."""

    code = "bad_password"
    status = 422
    detail = _("This password cannot be used.")


class SignInRefused(AccessError):
    """The provider has confirmed an account that may not sign in here."""

    code = "sign_in_refused"
    status = 403
    detail = _(
        "This account cannot sign in here: it is deactivated, or a local account has its name."
    )


class LastAdmin(AccessError):
    """The only active superuser would lose the permission."""

    code = "last_admin"
    detail = _("The last active superuser cannot be removed.")


class BadFilter(AccessError):
    """The URL is not a list of the admin, or has no filter."""

    code = "bad_filter"
    status = 422
    detail = _("This filter cannot be saved.")


class FilterNameTaken(AccessError):
    """The user has a saved filter of this name for this page."""

    code = "filter_name_taken"
    detail = _("You have a filter of this name on this page.")


class TooManyFilters(AccessError):
    """The person has reached the limit of saved filters for this page."""

    code = "too_many_filters"
    detail = _(
        "You have reached the maximum number of saved filters for this page; delete one first."
    )


class NoSuchSession(AccessError):
    """The session belongs to another user, or has ended."""

    code = "no_such_session"
    detail = _("This session has ended already.")


class LinkNotValid(AccessError):
    """The link is unknown, used, expired or obsolete."""

    code = "link_not_valid"
    detail = _("This link is not valid: it has been used, has expired, or is incomplete.")


class BadInvitation(AccessError):
    """Invalid user name or password."""

    code = "bad_invitation"
    status = 422
    detail = _("This value is not valid.")
