"""Admin of daemons."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import ChoicesDropdownFilter, FieldTextFilter
from unfold.decorators import display

from apps.access.admin.base import person_of
from apps.access.admin.confirm import asks_first
from apps.access.admin.lists import BoundedList
from apps.access.services import mask
from apps.dashboard import services
from apps.dashboard.admin.machinery import SHOWN_REASON, PlatformAdmin, as_json
from apps.runtime.engine.preview import printable
from apps.runtime.errors import DaemonIsAlive
from apps.runtime.models import Daemon
from apps.runtime.services import database_now, is_live
from apps.runtime.states import DAEMON_FINAL


class _DaemonList(BoundedList):
    """List of daemons, all judged at the same time of the database's clock."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        """Set ``judged_at`` of each daemon of this page."""
        super().get_results(request)
        now = database_now()
        daemons = list(self.result_list)
        for daemon in daemons:
            daemon.judged_at = now
        self.result_list = daemons


@admin.register(Daemon)
class DaemonAdmin(PlatformAdmin):
    """Daemons of the installation, by their last heartbeat."""

    list_display = ("name", "kind", "life", "host", "pid", "last_seen", "up", "version", "trouble")
    list_filter = (("kind", FieldTextFilter), ("state", ChoicesDropdownFilter))
    list_filter_submit = True
    search_fields = ("name", "host", "kind")
    ordering = ("kind", "name")
    actions = ("forget_selected",)
    fields = (
        ("kind", "name", "life"),
        ("host", "pid", "boot"),
        ("started_at", "beat_at", "version"),
        "detail_text",
    )
    readonly_fields = ("life", "detail_text")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[_DaemonList]:
        """Return the list class that reads the database's time once."""
        return _DaemonList

    @display(
        description=_("state"),
        ordering="state",
        label={"alive": "success", "failing": "warning", "silent": "danger", "ended": "info"},
    )
    def life(self, daemon: Daemon) -> tuple[str, str]:
        """Reported state, or silent."""
        reported = daemon.get_state_display()
        if daemon.state in DAEMON_FINAL:
            return "ended", reported
        if not is_live(daemon, now=_judged_at(daemon)):
            return "silent", gettext("silent (was %(state)s)") % {"state": reported}
        return ("failing" if daemon.state == "failing" else "alive"), reported

    @admin.display(description=_("last seen"), ordering="beat_at")
    def last_seen(self, daemon: Daemon) -> str:
        """Age of the last heartbeat."""
        seconds = max(0, int((_judged_at(daemon) - daemon.beat_at).total_seconds()))
        if seconds < 60:
            return ngettext("%(n)d second ago", "%(n)d seconds ago", seconds) % {"n": seconds}
        since = timesince(daemon.beat_at, _judged_at(daemon), depth=1)
        return gettext("%(time)s ago") % {"time": since}

    @admin.display(description=_("up for"), ordering="started_at")
    def up(self, daemon: Daemon) -> str:
        """Uptime; empty unless it is alive."""
        now = _judged_at(daemon)
        return timesince(daemon.started_at, now) if is_live(daemon, now=now) else ""

    @admin.display(description=_("last error"))
    def trouble(self, daemon: Daemon) -> str:
        """Error of the last failed step."""
        return printable(str(daemon.detail.get("error", "")))[:SHOWN_REASON]

    @admin.display(description=_("detail"))
    def detail_text(self, daemon: Daemon) -> SafeString:
        """Further data of the heartbeat."""
        return as_json(mask(daemon.detail))

    @admin.action(description=_("Forget silent and stopped processes"), permissions=["decide"])
    @asks_first(
        verb=_("Forget"),
        loss=_(
            "Removes silent and stopped processes from this list; processes that are alive stay."
        ),
    )
    def forget_selected(self, request: HttpRequest, queryset: QuerySet[Daemon]) -> None:
        """Delete the rows of silent and stopped daemons."""
        done = kept = 0
        for daemon in queryset:
            try:
                services.forget_daemon(daemon=daemon, actor=person_of(request))
                done += 1
            except DaemonIsAlive:
                kept += 1
        if done:
            text = ngettext("%(n)d process was removed.", "%(n)d processes were removed.", done)
            messages.success(request, text % {"n": done})
        if kept:
            text = ngettext(
                "%(n)d process is alive and stays.", "%(n)d processes are alive and stay.", kept
            )
            messages.warning(request, text % {"n": kept})


def _judged_at(daemon: Daemon) -> datetime:
    now: datetime | None = getattr(daemon, "judged_at", None)
    return now or database_now()
