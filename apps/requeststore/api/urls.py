"""REST addresses below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import api_path
from apps.requeststore.api.scaling import ScaleView

urlpatterns = [
    api_path("requests/scale", ScaleView.as_view(), name="requests-scale"),
]
