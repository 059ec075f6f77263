"""Errors of the configuration center, shown by REST and the admin."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class ConfigError(DomainError):
    """Base of this app's errors."""


class ImmutableHistory(ConfigError):
    """A version or an activation was about to be changed or deleted."""

    code = "history_is_fixed"
    detail = _("Versions of a configuration are never changed or deleted.")


class UnknownKind(ConfigError):
    """No app has registered this kind."""

    code = "unknown_kind"
    status = 422
    detail = _("Unknown kind of configuration.")


class BadConfig(ConfigError):
    """The data has problems; ``fields["data"]`` lists them, each with its place."""

    code = "bad_config"
    status = 422
    detail = _("The configuration is not valid.")


class PlatformNotSupported(ConfigError):
    """Only projects have configurations of this kind."""

    code = "not_of_platform"
    status = 422
    detail = _("Only projects have a configuration of this kind.")


class SaveConflict(ConfigError):
    """A newer version was saved after the caller read the latest one."""

    code = "saved_meanwhile"
    detail = _("Another version was saved meanwhile; compare with it and save again.")


class ActivationConflict(ConfigError):
    """Another version is active than the caller believes."""

    code = "activated_meanwhile"
    detail = _("Another version was activated meanwhile.")


class AlreadyActive(ConfigError):
    """The version is active."""

    code = "already_active"
    detail = _("This version is already active.")


class NotActive(ConfigError):
    """No version is active."""

    code = "not_active"
    detail = _("No version of this configuration is active.")


class NothingToRevert(ConfigError):
    """There is no earlier active version to go back to."""

    code = "nothing_to_revert"
    detail = _("No other version was active before.")


class NeverActive(ConfigError):
    """Going back is for versions that have been active; others are activated."""

    code = "never_active"
    detail = _("This version has never been active; activate it instead.")
