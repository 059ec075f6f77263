"""Read-only admin pages of beat's tables.

The library's pages do not fit the admin's theme, and beat's next start would undo manual changes.
"""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _
from django_celery_beat.models import (
    ClockedSchedule,
    CrontabSchedule,
    IntervalSchedule,
    PeriodicTask,
    SolarSchedule,
)

from apps.access.admin.lists import CarefulAdmin, renamed
from apps.access.admin.people import SuperuserOnly
from apps.access.admin.read_only import ReadOnly

for _model in (ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule):
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(ReadOnly, SuperuserOnly, CarefulAdmin):
    """Periodic tasks and the time of their last message; superusers only."""

    list_display = ("title", "wakes", "when", "is_on", "last_sent", "times_sent")
    list_filter = ("enabled", "task")
    list_select_related = ("interval", "crontab", "solar", "clocked")
    search_fields = ("name", "task")
    ordering = ("name",)
    list_per_page = 50
    fields = (
        "title",
        "wakes",
        "arguments",
        "to_queue",
        "when",
        "void_after",
        "is_on",
        "last_sent",
        "times_sent",
        "changed",
    )
    readonly_fields = fields
    title = renamed("name", _("name"))
    wakes = renamed("task", _("task"))
    arguments = renamed("kwargs", _("arguments"))
    to_queue = renamed("queue", _("queue"))
    void_after = renamed("expire_seconds", _("expires after (seconds)"))
    last_sent = renamed("last_run_at", _("last sent at"))
    times_sent = renamed("total_run_count", _("times sent"))
    changed = renamed("date_changed", _("changed at"))

    @admin.display(description=_("enabled"), ordering="enabled", boolean=True)
    def is_on(self, task: PeriodicTask) -> bool:
        return bool(task.enabled)

    @admin.display(description=_("schedule"))
    def when(self, task: PeriodicTask) -> str:
        """Return the interval or cron times of a periodic task."""
        return str(task.scheduler)
