"""Address of webhook deliveries."""

from __future__ import annotations

from django.urls import path

from apps.projects.webhooks import receive

app_name = "projects"
urlpatterns = [
    path("webhooks/<slug:slug>/", receive, name="webhook"),
    # Senders follow no redirect, so the address works without its final slash too.
    path("webhooks/<slug:slug>", receive),
]
