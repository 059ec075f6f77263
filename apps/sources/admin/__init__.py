"""The admin of this app."""

from apps.sources.admin.credentials import CredentialAdmin
from apps.sources.admin.harvests import HarvestAdmin
from apps.sources.admin.sources import SourceAdmin

__all__ = ["CredentialAdmin", "HarvestAdmin", "SourceAdmin"]
