"""URLs of admin pages and their buttons."""

from __future__ import annotations

from apps.alerts.admin import yields

app_name = "alerts"
urlpatterns = [*yields.addresses]
