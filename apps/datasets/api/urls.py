"""URLs of the REST API below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import ApiRouter, api_path
from apps.datasets.api.files import RunFilesView, RunFileView
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
urlpatterns = [
    api_path("datasets/<int:dataset>/items", DatasetItemsView.as_view(), name="dataset-items"),
    api_path("runs/<int:run>/items", RunItemsView.as_view(), name="run-items"),
    api_path("runs/<int:run>/items/accounting", RunAccountingView.as_view(), name="run-accounting"),
    api_path("runs/<int:run>/items/fields", RunItemStatisticsView.as_view(), name="run-fields"),
    api_path("runs/<int:run>/items/values", RunFieldValuesView.as_view(), name="run-values"),
    api_path("runs/<int:run>/compare", RunComparisonView.as_view(), name="run-compare"),
    api_path("runs/<int:run>/files", RunFilesView.as_view(), name="run-files"),
    api_path("runs/<int:run>/files/<int:file>/download", RunFileView.as_view(), name="run-file"),
    *router.urls,
]
