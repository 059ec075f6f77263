"""URLs of the REST API below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import ApiRouter, api_path
from apps.datasets.api.deliveries import DataDeliveryViewSet
from apps.datasets.api.files import RunFilesView, RunFileView
from apps.datasets.api.kept_pages import (
    RunPageAccountingView,
    RunPagesView,
    RunPagesWarcView,
    RunReplayView,
)
from apps.datasets.api.requests import (
    RunFailureGroupsView,
    RunRequestAccountingView,
    RunRequestsRetryView,
    RunRequestsView,
)
from apps.datasets.api.trials import ImageTrialViewSet
from apps.datasets.api.views import (
    DatasetItemsView,
    DatasetViewSet,
    RunAccountingView,
    RunComparisonView,
    RunFieldValuesView,
    RunItemStatisticsView,
    RunItemsView,
)

router = ApiRouter()
router.register("datasets", DatasetViewSet, basename="dataset")
router.register("image-trials", ImageTrialViewSet, basename="image-trial")
_DELIVERY = "datasets/<int:dataset>/deliveries/<int:pk>"
_deliveries = [
    api_path(
        "datasets/<int:dataset>/deliveries",
        DataDeliveryViewSet.as_view({"get": "list", "post": "create"}),
        name="dataset-delivery-list",
    ),
    api_path(
        _DELIVERY,
        DataDeliveryViewSet.as_view(
            {"get": "retrieve", "put": "update", "patch": "partial_update", "delete": "destroy"}
        ),
        name="dataset-delivery-detail",
    ),
    *(
        api_path(
            f"{_DELIVERY}/{address}",
            DataDeliveryViewSet.as_view({method: name}),
            name=f"dataset-delivery-{address}",
        )
        for address, method, name in (
            ("pause", "post", "pause"),
            ("resume", "post", "resume"),
            ("deliver-again", "post", "again"),
            ("retry-failures", "post", "retry_failures"),
            ("dead-letters", "get", "dead_letters"),
        )
    ),
]
urlpatterns = [
    api_path("datasets/<int:dataset>/items", DatasetItemsView.as_view(), name="dataset-items"),
    api_path("runs/<int:run>/items", RunItemsView.as_view(), name="run-items"),
    api_path("runs/<int:run>/items/accounting", RunAccountingView.as_view(), name="run-accounting"),
    api_path("runs/<int:run>/items/fields", RunItemStatisticsView.as_view(), name="run-fields"),
    api_path("runs/<int:run>/items/values", RunFieldValuesView.as_view(), name="run-values"),
    api_path("runs/<int:run>/compare", RunComparisonView.as_view(), name="run-compare"),
    *_deliveries,
    api_path("runs/<int:run>/requests", RunRequestsView.as_view(), name="run-requests"),
    api_path(
        "runs/<int:run>/requests/accounting",
        RunRequestAccountingView.as_view(),
        name="run-request-accounting",
    ),
    api_path(
        "runs/<int:run>/requests/failures", RunFailureGroupsView.as_view(), name="run-failures"
    ),
    api_path("runs/<int:run>/replay", RunReplayView.as_view(), name="run-replay"),
    api_path("runs/<int:run>/requests/retry", RunRequestsRetryView.as_view(), name="run-retry"),
    api_path(
        "datasets/<int:pk>/runs/<int:run>/data",
        DatasetViewSet.as_view({"delete": "delete_data"}, http_method_names=["delete"]),
        name="dataset-run-data",
    ),
    api_path("runs/<int:run>/pages", RunPagesView.as_view(), name="run-pages"),
    api_path(
        "runs/<int:run>/pages/accounting",
        RunPageAccountingView.as_view(),
        name="run-pages-accounting",
    ),
    api_path("runs/<int:run>/pages/warc", RunPagesWarcView.as_view(), name="run-pages-warc"),
    api_path("runs/<int:run>/files", RunFilesView.as_view(), name="run-files"),
    api_path("runs/<int:run>/files/<int:file>/download", RunFileView.as_view(), name="run-file"),
    *router.urls,
]
