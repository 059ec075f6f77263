"""Typed refusals. ``DomainError`` is the base of every app's own errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

Text = str | Promise


class DomainError(Exception):
    """A request that is understood and refused.

    A subclass sets ``code`` (stable, snake_case, for programs), ``detail`` (for people,
    translatable) and ``status``: 409 when the state of things forbids it now, 422 when the
    input itself is wrong. ``fields`` maps input names to messages. REST answers with exactly
    these; the admin shows ``detail``.
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
            [str(self.detail), *(str(m) for each in self.fields.values() for m in each)]
        )


class AccessError(DomainError):
    """Base of this app's refusals."""


class AuditIsAppendOnly(AccessError):
    """Something tried to change or delete an audit record."""

    code = "audit_append_only"
    detail = _("Audit records cannot be changed or deleted.")


class RoleRequired(AccessError):
    """The person lacks the role in that project."""

    code = "role_required"
    status = 403
    detail = _("Your role in this project does not allow this.")


class InvalidScopes(AccessError):
    """A token was asked for with scopes that do not exist."""

    code = "invalid_scopes"
    status = 422
    detail = _("These scopes are not valid.")


class ScopeTooWide(AccessError):
    """A token may not make a token that can do more than itself."""

    code = "scope_too_wide"
    status = 403
    detail = _("A token cannot make a token that may do more than itself.")


class InvalidNetworks(AccessError):
    """A token was asked for with networks that are none."""

    code = "invalid_networks"
    status = 422
    detail = _("These networks are not valid.")


class TokenExpired(AccessError):
    """The token has ended by itself."""

    code = "token_expired"
    detail = _("This token has expired: make a new one.")


class TokenRevoked(AccessError):
    """The token was revoked before."""

    code = "token_revoked"
    detail = _("This token has already been revoked.")


class NotDeleted(AccessError):
    """Something was to be restored that is there."""

    code = "not_deleted"
    detail = _("This is not deleted.")


class FactorExists(AccessError):
    """The person has a second factor."""

    code = "second_factor_exists"
    detail = _("You have a second factor already.")


class NoFactor(AccessError):
    """The person has no second factor."""

    code = "no_second_factor"
    detail = _("There is no second factor.")


class WrongCode(AccessError):
    """The code is not of now, or was used before."""

    code = "wrong_code"
    status = 422
    detail = _("This code is wrong, too old, or was used before.")


class TooManyCodes(AccessError):
    """Five wrong codes in a row."""

    code = "too_many_codes"
    status = 429
    detail = _("Too many wrong codes: wait five minutes.")


class WrongPassword(AccessError):
    """The current password given by the caller is wrong."""

    code = "wrong_password"
    status = 422
    detail = _("This is not your password.")


class BadPassword(AccessError):
    """A password that is easy to guess."""

    code = "bad_password"
    status = 422
    detail = _("This password cannot be used.")


class LastAdmin(AccessError):
    """The only active superuser would lose the right."""

    code = "last_admin"
    detail = _("The last active superuser cannot be removed.")


class BadFilter(AccessError):
    """What was to be saved is no filter of a page here."""

    code = "bad_filter"
    status = 422
    detail = _("This filter cannot be saved.")


class FilterNameTaken(AccessError):
    """The person has a filter of this name on this page."""

    code = "filter_name_taken"
    detail = _("You have a filter of this name on this page.")


class TooManyFilters(AccessError):
    """The person has reached the limit of saved filters for this page."""

    code = "too_many_filters"
    detail = _("You have many filters on this page already: delete one first.")


class NoSuchSession(AccessError):
    """The session is not the person's, or has ended."""

    code = "no_such_session"
    detail = _("This session has ended already.")


class LinkNotValid(AccessError):
    """The link was never made, was used, is too old, or is not needed any more."""

    code = "link_not_valid"
    detail = _("This link is not good: it was used before, is too old, or is not complete.")


class BadInvitation(AccessError):
    """A name or a password that will not do."""

    code = "bad_invitation"
    status = 422
    detail = _("This will not do.")
