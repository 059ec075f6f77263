"""Errors of this app, shown by REST and the admin; those of the engine are in ``engine.errors``."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class SourcesError(DomainError):
    """Base of this app's errors."""

    code = "sources_error"


class NoSuchSource(SourcesError):
    """The active configuration of the project has no source of this name."""

    code = "unknown_source"
    status = 404
    detail = _("This project has no such source.")


class SourceDisabled(SourcesError):
    """Its settings say ``enabled: false``."""

    code = "source_disabled"
    detail = _("This source is disabled.")


class SourceBusy(SourcesError):
    """The progress of a source cannot be changed during an import."""

    code = "source_busy"
    detail = _("This source is being imported; stop it first.")


class BadMarker(SourcesError):
    """A marker must be an offset."""

    code = "bad_marker"
    status = 422
    detail = _("The marker must be an integer of at least 0.")


class CredentialInUse(SourcesError):
    """Sources of the active configuration use the credentials."""

    code = "credential_in_use"
    detail = _("These credentials are in use by sources.")


class CredentialExists(SourcesError):
    """The name is taken by other credentials."""

    code = "credential_exists"
    detail = _("The project already has credentials with this name.")


class BadCredential(SourcesError):
    """Invalid name or headers."""

    code = "bad_credential"
    status = 422
    detail = _("These credentials are not valid.")


class NoSources(SourcesError):
    """No project that the caller may use has an active configuration of sources."""

    code = "no_sources"
    detail = _("No sources are active in this project.")


class SourceProjectNeeded(SourcesError):
    """Several projects have sources: the call must name one."""

    code = "project_needed"
    status = 400
    detail = _("Specify the project: put /projects/NAME/ before the path.")


class NoSuchQueue(SourcesError):
    """No source of the project publishes to it."""

    code = "unknown_queue"
    status = 404
    detail = _("No source of this project uses this queue.")


class QueueNeeded(SourcesError):
    """The project has several queues: the call must name one."""

    code = "queue_needed"
    status = 400
    detail = _("This project has several record queues. Specify one.")


class QueueOwnedElsewhere(SourcesError):
    """The queue holds records of another project, or the platform's own messages."""

    code = "queue_of_others"
    detail = _("This queue belongs to another project.")


class NoSuchLease(SourcesError):
    """The records were acknowledged, returned, or leased again after the deadline."""

    code = "unknown_lease"
    status = 404
    detail = _("This lease no longer exists.")


class BrokerUnreachable(SourcesError):
    """The broker is unreachable; no record was taken."""

    code = "broker_unavailable"
    status = 503
    detail = _("The broker is unreachable. Try again.")


class SourceUnreachable(SourcesError):
    """The record API returned no usable response; ``fields`` has the reason."""

    code = "source_unavailable"
    status = 503
    detail = _("The record API returned no usable response.")
