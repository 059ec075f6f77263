"""Addresses of logs."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from apps.joblogs.pages import log_page

app_name = "joblogs"
urlpatterns = [path("logs/<str:stream>", admin.site.admin_view(log_page), name="log")]
