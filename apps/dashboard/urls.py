"""URLs of the live pages; the overview is the admin's index."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from apps.dashboard import pages
from apps.dashboard.navigation import views

view = admin.site.admin_view

app_name = "dashboard"
urlpatterns = [
    path("home/live", view(pages.home_live), name="home-live"),
    path("runs/<int:pk>", view(pages.run_page), name="run"),
    path("runs/<int:pk>/live", view(pages.run_live), name="run-live"),
    path("admin/health", view(pages.health), name="health"),
    path("admin/health/live", view(pages.health_live), name="health-live"),
    path("admin/health/runbook", view(pages.runbook), name="runbook"),
    # Before the theme's own search, which reads every matching row.
    path("admin/search/", view(views.search_view), name="search"),
    path("admin/keys", view(views.shortcuts_page), name="keys"),
]
