"""URLs of the log pages."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from apps.joblogs import pages

app_name = "joblogs"
urlpatterns = [
    path("logs", admin.site.admin_view(pages.search_page), name="search"),
    path("logs/errors", admin.site.admin_view(pages.errors_page), name="errors"),
    path(
        "logs/errors/<int:pk>/<str:what>",
        admin.site.admin_view(pages.move_error),
        name="move-error",
    ),
    path("logs/<str:stream>", admin.site.admin_view(pages.log_page), name="log"),
]
