"""Processes in the admin: which are there, which have gone silent."""

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
from apps.dashboard.admin.machinery import SHOWN_REASON, MachineryAdmin, as_json
from apps.runtime.engine.preview import printable
from apps.runtime.errors import DaemonIsAlive
from apps.runtime.models import Daemon
from apps.runtime.services import database_now, is_live
from apps.runtime.states import DAEMON_FINAL


class _DaemonList(BoundedList):
    """The list of processes, all judged at one moment by the database's clock."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        """Processes of this page, each with ``seen_from``."""
        super().get_results(request)
        now = database_now()
        daemons = list(self.result_list)
        for daemon in daemons:
            daemon.seen_from = now
        self.result_list = daemons


@admin.register(Daemon)
class DaemonAdmin(MachineryAdmin):
    """Every daemon of the installation: is it there, where, since when."""

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
        """The list with one clock."""
        return _DaemonList

    @display(
        description=_("state"),
        ordering="state",
        label={"alive": "success", "failing": "warning", "silent": "danger", "ended": "info"},
    )
    def life(self, daemon: Daemon) -> tuple[str, str]:
        """What it said last, or that it has gone silent."""
        said = daemon.get_state_display()
        if daemon.state in DAEMON_FINAL:
            return "ended", said
        if not is_live(daemon, now=_seen_from(daemon)):
            return "silent", gettext("silent (was %(state)s)") % {"state": said}
        return ("failing" if daemon.state == "failing" else "alive"), said

    @admin.display(description=_("last seen"), ordering="beat_at")
    def last_seen(self, daemon: Daemon) -> str:
        """How long ago its last heartbeat came."""
        seconds = max(0, int((_seen_from(daemon) - daemon.beat_at).total_seconds()))
        if seconds < 60:
            return ngettext("%(n)d second ago", "%(n)d seconds ago", seconds) % {"n": seconds}
        since = timesince(daemon.beat_at, _seen_from(daemon), depth=1)
        return gettext("%(time)s ago") % {"time": since}

    @admin.display(description=_("up for"), ordering="started_at")
    def up(self, daemon: Daemon) -> str:
        """Since its start; nothing for one that is gone."""
        now = _seen_from(daemon)
        return timesince(daemon.started_at, now) if is_live(daemon, now=now) else ""

    @admin.display(description=_("last error"))
    def trouble(self, daemon: Daemon) -> str:
        """Why its last step failed."""
        return printable(str(daemon.detail.get("error", "")))[:SHOWN_REASON]

    @admin.display(description=_("detail"))
    def detail_text(self, daemon: Daemon) -> SafeString:
        """What its heartbeat says beside."""
        return as_json(mask(daemon.detail))

    @admin.action(description=_("Forget the silent and ended ones"), permissions=["decide"])
    @asks_first(
        verb=_("Forget"),
        loss=_("What is known of those that are silent or ended goes; those alive are kept."),
    )
    def forget_selected(self, request: HttpRequest, queryset: QuerySet[Daemon]) -> None:
        """Remove the rows of processes that will not come back."""
        done = kept = 0
        for daemon in queryset:
            try:
                services.forget_daemon(daemon=daemon, actor=person_of(request))
                done += 1
            except DaemonIsAlive:
                kept += 1
        if done:
            text = ngettext("%(n)d process was forgotten.", "%(n)d processes were forgotten.", done)
            messages.success(request, text % {"n": done})
        if kept:
            text = ngettext("%(n)d process is alive.", "%(n)d processes are alive.", kept)
            messages.warning(request, text % {"n": kept})


def _seen_from(daemon: Daemon) -> datetime:
    now: datetime | None = getattr(daemon, "seen_from", None)
    return now or database_now()
