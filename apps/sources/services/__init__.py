"""Services of sources, credentials and record queues."""

from apps.sources.services.commands import CommandOutcome, SourceCommand, set_marker, start, stop
from apps.sources.services.credentials import delete_credential, save_credential

__all__ = [
    "CommandOutcome",
    "SourceCommand",
    "delete_credential",
    "save_credential",
    "set_marker",
    "start",
    "stop",
]
