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


class CredentialExists(SourceRefusal):
    """A name stands for one set of secrets."""

    code = "credential_exists"
    detail = _("The project has credentials of this name already.")


class BadCredential(SourceRefusal):
    """A name or headers that cannot be."""

    code = "bad_credential"
    status = 422
    detail = _("These credentials are not possible.")


class NoSources(SourceRefusal):
    """No project that the caller may use has an active configuration of sources."""

    code = "no_sources"
    detail = _("No sources are active in this project.")


class SourceProjectNeeded(SourceRefusal):
    """The caller could mean several projects."""

    code = "project_needed"
    status = 400
    detail = _("Say which project: /projects/NAME/ before the path.")


class NoSuchQueue(SourceRefusal):
    """No source of the project publishes to it."""

    code = "unknown_queue"
    status = 404
    detail = _("No source of this project has this queue.")


class QueueNeeded(SourceRefusal):
    """The sources of the project publish to several queues."""

    code = "queue_needed"
    status = 400
    detail = _("This project has several queues of records; say which one.")


class QueueOfOthers(SourceRefusal):
    """The queue holds records of another project, or the platform's own messages."""

    code = "queue_of_others"
    detail = _("This queue belongs to another project.")


class NoSuchLease(SourceRefusal):
    """The records were acknowledged, given back, or leased again after the deadline."""

    code = "unknown_lease"
    status = 404
    detail = _("There is no such lease any more.")


class BrokerAway(SourceRefusal):
    """Try again later; nothing was taken."""

    code = "broker_unavailable"
    status = 503
    detail = _("The broker does not answer. Try again.")


class SourceAway(SourceRefusal):
    """Its record API gave no usable answer; ``fields`` says what it was."""

    code = "source_unavailable"
    status = 503
    detail = _("The record API gave no usable answer.")
