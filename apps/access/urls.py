"""Addresses of the buttons of saved filters."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from apps.access import pages
from apps.access.pages import second_factor

view = admin.site.admin_view

app_name = "access"
urlpatterns = [
    path("admin/second-factor/", view(second_factor.verify), name="second-factor"),
    path("admin/second-factor/add", view(second_factor.add), name="second-factor-add"),
    path(
        "admin/second-factor/remove",
        view(second_factor.remove),
        name="second-factor-remove",
    ),
    path("admin/filters/add", view(pages.add_filter), name="filter-add"),
    path("admin/filters/<int:pk>/rename", view(pages.rename_saved_filter), name="filter-rename"),
    path("admin/filters/<int:pk>/delete", view(pages.delete_saved_filter), name="filter-delete"),
]
