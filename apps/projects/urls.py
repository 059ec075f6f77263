"""URL pattern of webhook deliveries."""

from __future__ import annotations

from django.urls import path

from apps.projects.webhooks import receive

app_name = "projects"
urlpatterns = [
    path("webhooks/<slug:slug>/", receive, name="webhook"),
    # Senders do not follow redirects, so the URL also works without the trailing slash.
    path("webhooks/<slug:slug>", receive),
]
