"""Addresses of the live pages. The home page is the admin's index."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from apps.dashboard import pages

app_name = "dashboard"
urlpatterns = [
    path("home/live", admin.site.admin_view(pages.home_live), name="home-live"),
    path("runs/<int:pk>", admin.site.admin_view(pages.run_page), name="run"),
    path("runs/<int:pk>/live", admin.site.admin_view(pages.run_live), name="run-live"),
]
