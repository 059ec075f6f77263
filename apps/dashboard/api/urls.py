"""REST addresses below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import ApiRouter, api_path
from apps.dashboard.api.health import PartsView
from apps.dashboard.api.machinery import (
    DaemonViewSet,
    DeadLetterViewSet,
    OutboxViewSet,
    PeriodicTaskViewSet,
)

router = ApiRouter()
router.register("daemons", DaemonViewSet, basename="daemon")
router.register("dead-letters", DeadLetterViewSet, basename="dead-letter")
router.register("outbox", OutboxViewSet, basename="outbox")
router.register("periodic-tasks", PeriodicTaskViewSet, basename="periodic-task")

urlpatterns = [api_path("health/parts", PartsView.as_view(), name="health-parts"), *router.urls]
