"""Addresses of pages and of the buttons on them."""

from __future__ import annotations

from apps.alerts.admin import yields

app_name = "alerts"
urlpatterns = [*yields.addresses]
