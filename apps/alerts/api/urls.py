"""REST URLs of incidents, channels, notifications and yields."""

from __future__ import annotations

from apps.access.api.routers import ApiRouter, api_path
from apps.alerts.api import yields
from apps.alerts.api.rule_urls import urlpatterns as rule_paths
from apps.alerts.api.subscriptions import NotifyMeView, RunSubscriptionViewSet
from apps.alerts.api.views import ChannelViewSet, IncidentViewSet, NoticeViewSet

router = ApiRouter()
router.register("incidents", IncidentViewSet, basename="incident")
router.register("channels", ChannelViewSet, basename="channel")
router.register("notices", NoticeViewSet, basename="notice")
router.register("run-subscriptions", RunSubscriptionViewSet, basename="run-subscription")
_notify_me = api_path("jobs/<int:job>/notify-me", NotifyMeView.as_view(), name="job-notify-me")
urlpatterns = [_notify_me, *rule_paths, *router.urls, *yields.addresses]
