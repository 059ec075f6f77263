"""URLs of admin pages and their buttons."""

from __future__ import annotations

from apps.alerts.admin import job_notifications, yields

app_name = "alerts"
urlpatterns = [*yields.addresses, *job_notifications.addresses]
