"""Beat's tables in the admin: to look at. The platform's own services write them.

The library's own pages are no pages of the admin's theme, and a periodic task changed by hand
would be changed back by the next start of beat.
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
    """What beat sends, and when it last did; for superusers."""

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
    void_after = renamed("expire_seconds", _("expires after seconds"))
    last_sent = renamed("last_run_at", _("last sent at"))
    times_sent = renamed("total_run_count", _("times sent"))
    changed = renamed("date_changed", _("changed at"))

    @admin.display(description=_("enabled"), ordering="enabled", boolean=True)
    def is_on(self, task: PeriodicTask) -> bool:
        """Whether it is sent."""
        return bool(task.enabled)

    @admin.display(description=_("schedule"))
    def when(self, task: PeriodicTask) -> str:
        """Interval, or cron times, of a periodic task."""
        return str(task.scheduler)
