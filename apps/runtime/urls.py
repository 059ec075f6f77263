"""URLs of the probes for load balancers and orchestrators: no login, no secrets."""

from __future__ import annotations

from django.urls import path

from apps.runtime.pages import healthz, readyz

app_name = "runtime"
urlpatterns = [path("healthz", healthz, name="healthz"), path("readyz", readyz, name="readyz")]
