"""Every write of this app."""

from apps.sources.services.asking import Asked, Became, set_marker, start, stop
from apps.sources.services.credentials import delete_credential, save_credential

__all__ = [
    "Asked",
    "Became",
    "delete_credential",
    "save_credential",
    "set_marker",
    "start",
    "stop",
]
