"""REST URLs of incidents, channels, notifications and yields."""

from __future__ import annotations

from apps.access.api.routers import ApiRouter
from apps.alerts.api import yields
from apps.alerts.api.rule_urls import urlpatterns as rule_paths
from apps.alerts.api.views import ChannelViewSet, IncidentViewSet, NoticeViewSet

router = ApiRouter()
router.register("incidents", IncidentViewSet, basename="incident")
router.register("channels", ChannelViewSet, basename="channel")
router.register("notices", NoticeViewSet, basename="notice")
urlpatterns = [*rule_paths, *router.urls, *yields.addresses]
