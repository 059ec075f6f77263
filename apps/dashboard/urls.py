"""URLs of the live pages; the overview is the admin's index."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from apps.dashboard import pages
from apps.dashboard.navigation import views
from apps.dashboard.pages import jobs, plans, runs

view = admin.site.admin_view

app_name = "dashboard"
urlpatterns = [
    path("home/live", view(pages.home_live), name="home-live"),
    path("schedule", view(plans.calendar_page), name="calendar"),
    path("schedule/timeline", view(plans.timeline_page), name="timeline"),
    path("schedule/dependencies", view(plans.dependencies_page), name="dependencies"),
    path("jobs/<int:pk>", view(jobs.job_page), name="job"),
    path("jobs/<int:pk>/runs", view(jobs.job_runs), name="job-runs"),
    path("jobs/<int:pk>/alerts", view(jobs.job_alerts), name="job-alerts"),
    path("runs/<int:pk>", view(runs.run_page), name="run"),
    path("runs/<int:pk>/live", view(runs.run_live), name="run-live"),
    path("runs/<int:pk>/log", view(runs.run_log), name="run-log"),
    path("runs/<int:pk>/head", view(runs.run_head_live), name="run-head"),
    path("runs/<int:pk>/settings", view(runs.run_settings), name="run-settings"),
    path("admin/health", view(pages.health), name="health"),
    path("admin/health/live", view(pages.health_live), name="health-live"),
    path("admin/health/runbook", view(pages.runbook), name="runbook"),
    # Before the theme's own search, which reads every matching row.
    path("admin/search/", view(views.search_view), name="search"),
    path("admin/keys", view(views.shortcuts_page), name="keys"),
]
