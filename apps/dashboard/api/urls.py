"""REST addresses below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import api_path
from apps.dashboard.api.health import PartsView

urlpatterns = [api_path("health/parts", PartsView.as_view(), name="health-parts")]
