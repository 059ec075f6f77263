"""Services of sources, credentials and record queues."""

from apps.sources.services.commands import Became, SourceCommand, set_marker, start, stop
from apps.sources.services.credentials import delete_credential, save_credential

__all__ = [
    "Became",
    "SourceCommand",
    "delete_credential",
    "save_credential",
    "set_marker",
    "start",
    "stop",
]
