"""URLs of the explain and replay pages, and of the REST paths that the seed fixes.

Those paths work with a project's slug, or without one for the caller's only project with rules.
"""

from __future__ import annotations

from django.contrib import admin
from django.urls import path, re_path

from apps.routing.admin.explain_page import explain_page
from apps.routing.admin.replay_page import replay_page
from apps.routing.api.seed import CheckTaskView, OutboundsView, TaskView

# Names of inbounds and outbounds may contain anything but a line break, slashes included.
_OF_PROJECT = r"^(?:projects/(?P<slug>[-\w]+)/)?"

urlpatterns = [
    path("routing/explain", admin.site.admin_view(explain_page), name="routing-explain"),
    path("routing/replay", admin.site.admin_view(replay_page), name="routing-replay"),
    re_path(rf"{_OF_PROJECT}task/?$", TaskView.as_view(), name="seed-task"),
    re_path(
        rf"{_OF_PROJECT}inbound/(?P<name>.+)/check_task/?$",
        CheckTaskView.as_view(),
        name="seed-check-task",
    ),
    re_path(
        rf"{_OF_PROJECT}outbound(?:/(?P<prefix>.*?))?/?$",
        OutboundsView.as_view(),
        name="seed-outbounds",
    ),
]
