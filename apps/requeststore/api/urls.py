"""URLs below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import ApiRouter, api_path
from apps.requeststore.api.bizzes import BizViewSet
from apps.requeststore.api.rebalances import RebalanceViewSet
from apps.requeststore.api.reextractions import ReextractionViewSet
from apps.requeststore.api.requests import RequestViewSet
from apps.requeststore.api.scale_advice import ScaleView
from apps.requeststore.api.tester_samples import SamplePageViewSet

router = ApiRouter()
router.register("requests", RequestViewSet, basename="request")
router.register("bizzes", BizViewSet, basename="biz")
router.register("rebalances", RebalanceViewSet, basename="rebalance")
router.register("reextractions", ReextractionViewSet, basename="reextraction")
router.register("sample-pages", SamplePageViewSet, basename="sample-page")
urlpatterns = [api_path("requests/scale", ScaleView.as_view(), name="requests-scale"), *router.urls]
