"""URLs below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import ApiRouter
from apps.sources.api.views import CredentialViewSet, HarvestViewSet, SourceProjectViewSet

router = ApiRouter()
router.register("sources/projects", SourceProjectViewSet, basename="source-project")
router.register("harvests", HarvestViewSet, basename="harvest")
router.register("source-credentials", CredentialViewSet, basename="source-credential")
urlpatterns = router.urls
