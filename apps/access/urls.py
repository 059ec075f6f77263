"""Addresses of the buttons of saved filters."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from apps.access import pages

view = admin.site.admin_view

app_name = "access"
urlpatterns = [
    path("admin/filters/add", view(pages.add_filter), name="filter-add"),
    path("admin/filters/<int:pk>/rename", view(pages.rename_saved_filter), name="filter-rename"),
    path("admin/filters/<int:pk>/delete", view(pages.delete_saved_filter), name="filter-delete"),
]
