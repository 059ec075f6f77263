"""Navigation of the pages: sidebar, command palette, keyboard shortcuts."""

from apps.dashboard.navigation.sidebar import sidebar
from apps.dashboard.navigation.views import global_context, time_zone

__all__ = ["global_context", "sidebar", "time_zone"]
