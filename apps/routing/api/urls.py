"""URL patterns of the router's REST API below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import ApiRouter
from apps.routing.api.items import RoutedItemViewSet
from apps.routing.api.projects import RoutingProjectViewSet

router = ApiRouter()
router.register("routing/projects", RoutingProjectViewSet, basename="routing-project")
router.register("routing/items", RoutedItemViewSet, basename="routed-item")
urlpatterns = router.urls
