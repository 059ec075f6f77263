"""Addresses under /api/v1/."""

from __future__ import annotations

from apps.access.api.routers import ApiRouter, api_path
from apps.configcenter.api.views import (
    ActivationViewSet,
    ConfigurationViewSet,
    KindsView,
    VersionViewSet,
)

router = ApiRouter()
router.register("config/versions", VersionViewSet, basename="config-version")
router.register("config/activations", ActivationViewSet, basename="config-activation")
router.register("config", ConfigurationViewSet, basename="config")

urlpatterns = [api_path("config/kinds", KindsView.as_view(), name="config-kinds"), *router.urls]
