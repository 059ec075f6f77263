"""Beat's tables in the admin: to look at. The platform's own services write them.

The library's own pages are no pages of the admin's theme, and a periodic task changed by hand
would be changed back by the next start of beat.
"""

from __future__ import annotations

from django.contrib import admin
from django_celery_beat.models import (
    ClockedSchedule,
    CrontabSchedule,
    IntervalSchedule,
    PeriodicTask,
    SolarSchedule,
)

from apps.access.admin.lists import CarefulAdmin
from apps.access.admin.people import SuperuserOnly
from apps.access.admin.read_only import ReadOnly

for _model in (ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule):
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(ReadOnly, SuperuserOnly, CarefulAdmin):
    """What beat sends, and when it last did; for superusers."""

    list_display = ("name", "task", "scheduler", "enabled", "last_run_at", "total_run_count")
    list_filter = ("enabled", "task")
    list_select_related = ("interval", "crontab", "solar", "clocked")
    search_fields = ("name", "task")
    ordering = ("name",)
    list_per_page = 50
    fields = (
        "name",
        "task",
        "kwargs",
        "queue",
        "interval",
        "crontab",
        "expire_seconds",
        "enabled",
        "last_run_at",
        "total_run_count",
        "date_changed",
    )
