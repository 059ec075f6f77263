"""How people get about: the sidebar, the command palette, keys."""

from apps.dashboard.navigation.sidebar import sidebar
from apps.dashboard.navigation.views import global_context, time_zone

__all__ = ["global_context", "sidebar", "time_zone"]
