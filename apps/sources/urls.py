"""Seed-compatible paths, for a named project or the caller's only one."""

from __future__ import annotations

from typing import Final

from django.urls import re_path

from apps.sources.api.seed import (
    ConsumeView,
    CrawlStartView,
    CrawlStopView,
    QueueSizeView,
    StatusView,
    TasksView,
)

_OF_PROJECT: Final = r"^(?:projects/(?P<slug>[-\w]+)/)?"

urlpatterns = [
    re_path(rf"{_OF_PROJECT}status/?$", StatusView.as_view(), name="sources-status"),
    re_path(rf"{_OF_PROJECT}tasks/?$", TasksView.as_view(), name="sources-tasks"),
    re_path(rf"{_OF_PROJECT}crawl/start/?$", CrawlStartView.as_view(), name="sources-start"),
    re_path(rf"{_OF_PROJECT}crawl/stop/?$", CrawlStopView.as_view(), name="sources-stop"),
    re_path(rf"{_OF_PROJECT}consume/?$", ConsumeView.as_view(), name="sources-consume"),
    re_path(rf"{_OF_PROJECT}queue/size/?$", QueueSizeView.as_view(), name="sources-queue-size"),
]
