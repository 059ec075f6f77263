"""Admin classes of the router: the ledger of items and the router's own pages."""

from apps.routing.admin.items import RoutedItemAdmin
from apps.routing.admin.router import RouterAdmin

__all__ = ["RoutedItemAdmin", "RouterAdmin"]
