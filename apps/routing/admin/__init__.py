"""The admin of this app."""

from apps.routing.admin.items import RoutedItemAdmin
from apps.routing.admin.router import RouterAdmin

__all__ = ["RoutedItemAdmin", "RouterAdmin"]
