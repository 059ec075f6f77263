"""Refusals of this app for people and REST; those of the engine are in ``engine.errors``."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class SourceRefusal(DomainError):
    """Base of this app's refusals."""

    code = "sources_error"


class NoSuchSource(SourceRefusal):
    """The active configuration of the project names no such source."""

    code = "unknown_source"
    status = 404
    detail = _("This project has no such source.")


class SourceSwitchedOff(SourceRefusal):
    """Its settings say ``enabled: false``."""

    code = "source_disabled"
    detail = _("This source is switched off.")


class SourceBusy(SourceRefusal):
    """Its progress cannot be changed while a harvest moves it."""

    code = "source_busy"
    detail = _("This source is being harvested; stop it first.")


class BadMarker(SourceRefusal):
    """A marker is an offset."""

    code = "bad_marker"
    status = 422
    detail = _("A marker is a whole number, 0 or more.")


class CredentialInUse(SourceRefusal):
    """Sources of the active configuration name it."""

    code = "credential_in_use"
    detail = _("Sources use these credentials.")


class BadCredential(SourceRefusal):
    """A name or headers that cannot be."""

    code = "bad_credential"
    status = 422
    detail = _("These credentials are not possible.")
