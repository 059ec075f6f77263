"""URL of the Prometheus endpoint."""

from __future__ import annotations

from django.urls import path

from apps.queuestats.api.prometheus import MetricsView

app_name = "queuestats"
urlpatterns = [path("metrics", MetricsView.as_view(), name="metrics")]
