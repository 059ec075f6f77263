"""URLs of the pages of datasets."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from apps.datasets.pages.comparison import compare_page
from apps.datasets.pages.deliveries import deliveries_page, move_delivery
from apps.datasets.pages.files import files_page
from apps.datasets.pages.items import (
    change_run_data,
    dataset_items,
    job_items,
    run_items,
    run_items_live,
)
from apps.datasets.pages.kept_pages import kept_content, kept_page, kept_pages, replay_pages
from apps.datasets.pages.listing import dataset_list, project_datasets
from apps.datasets.pages.requests import retry_run_requests, run_requests, run_requests_live
from apps.datasets.pages.settings import settings_page
from apps.datasets.pages.trials import trial_page, trials_page, use_image

view = admin.site.admin_view

app_name = "datasets"
urlpatterns = [
    path("data", view(dataset_list), name="list"),
    path("data/<int:pk>", view(dataset_items), name="dataset"),
    path("data/<int:pk>/deliveries", view(deliveries_page), name="deliveries"),
    path(
        "data/<int:pk>/deliveries/<int:delivery>/<slug:what>",
        view(move_delivery),
        name="delivery-move",
    ),
    path("jobs/<int:pk>/data", view(job_items), name="job"),
    path("jobs/<int:pk>/trials", view(trials_page), name="trials"),
    path("image-trials/<int:pk>", view(trial_page), name="trial"),
    path("image-trials/<int:pk>/use", view(use_image), name="trial-use"),
    path("projects/<int:pk>/data", view(project_datasets), name="project"),
    path("runs/<int:pk>/data", view(run_items), name="run"),
    path("runs/<int:pk>/data/live", view(run_items_live), name="run-live"),
    *(
        path(
            f"runs/<int:pk>/data/{what}", view(change_run_data), {"what": what}, name=f"run-{what}"
        )
        for what in ("pin", "unpin", "delete")
    ),
    path("runs/<int:pk>/requests", view(run_requests), name="run-requests"),
    path("runs/<int:pk>/requests/live", view(run_requests_live), name="run-requests-live"),
    path("runs/<int:pk>/replay", view(replay_pages), name="run-replay"),
    path("runs/<int:pk>/requests/retry", view(retry_run_requests), name="run-requests-retry"),
    path("runs/<int:pk>/compare", view(compare_page), name="compare"),
    path("runs/<int:pk>/files", view(files_page), name="run-files"),
    path("runs/<int:pk>/pages", view(kept_pages), name="run-pages"),
    path("runs/<int:pk>/pages/<slug:warc>/<int:record>", view(kept_page), name="run-page"),
    *(
        path(
            f"runs/<int:pk>/pages/<slug:warc>/<int:record>/{what}",
            view(kept_content),
            {"what": what},
            name=f"run-page-{what}",
        )
        for what in ("rendered", "screenshot", "body")
    ),
    path("data/<int:pk>/settings", view(settings_page), name="settings"),
]
