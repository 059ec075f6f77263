"""The machinery in the admin: dead letters, processes, and what waits in the outbox.

Here and not in apps.runtime, which knows neither people nor the audit trail. Messages may carry
anything of any project, so only those who see everything see them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.contrib.filters.admin import ChoicesDropdownFilter, FieldTextFilter
from unfold.decorators import display

from apps.access.admin.base import person_of
from apps.access.admin.confirm import ask_first, asks_first
from apps.access.admin.lists import BoundedList, CarefulAdmin
from apps.access.admin.read_only import ReadOnly
from apps.access.services import mask
from apps.dashboard import services
from apps.runtime.engine.preview import preview, printable
from apps.runtime.errors import DaemonIsAlive, RuntimeRefusal
from apps.runtime.models import Daemon, DeadLetter, OutboxMessage
from apps.runtime.services import database_now, is_live
from apps.runtime.states import DAEMON_FINAL, DeadLetterState

SHOWN_REASON = 120
# Bodies may have megabytes: no more of them in memory at once.
CHUNK = 20

PRE = '<pre class="overflow-auto whitespace-pre-wrap break-all max-h-[40rem]">{}</pre>'


class _Machinery(ReadOnly, CarefulAdmin):
    """To read, by those who see everything."""

    show_full_result_count = False
    list_per_page = 50

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Superusers and auditors, not narrowed to a project."""
        person = person_of(request)
        return person is not None and person.is_staff and person.sees_everything

    def has_module_permission(self, request: HttpRequest) -> bool:
        """The same."""
        return self.has_view_permission(request)

    def has_decide_permission(self, request: HttpRequest) -> bool:
        """What is here is sent back or dropped by superusers; auditors only look."""
        person = person_of(request)
        return person is not None and person.is_staff and person.rules_everything


def _json(value: object) -> SafeString:
    return format_html(PRE, printable(json.dumps(value, indent=2, ensure_ascii=False)))


def _body(body: bytes | memoryview) -> SafeString:
    shown = preview(bytes(body), mask)
    note = {
        "message": gettext("message"),
        "json": "JSON",
        "msgpack": "MessagePack",
        "text": gettext("text"),
        "hex": gettext("bytes"),
    }[shown.form]
    if shown.kind:
        note = f"{note} {shown.kind}"
    if shown.cut:
        note = gettext("%(form)s, only the beginning") % {"form": note}
    return format_html("<p>{}</p>" + PRE, note, shown.text)


@admin.register(DeadLetter)
class DeadLetterAdmin(_Machinery):
    """What nobody could use: read why, then send it back or drop it."""

    list_display = ("short_reason", "queue", "size", "died_at", "state_label", "resolved_by")
    list_filter = (
        ("state", ChoicesDropdownFilter),
        ("queue", FieldTextFilter),
        ("reason", FieldTextFilter),
    )
    list_filter_submit = True
    search_fields = ("=message_id", "queue", "reason")
    search_help_text = _("Message id, queue or reason")
    ordering = ("-died_at", "-id")
    actions = ("requeue_selected", "drop_selected")
    fields = (
        ("state_label", "resolved_by", "resolved_at"),
        "reason_text",
        ("queue", "died_at", "stored_at"),
        ("message_id", "exchange", "key", "project"),
        "headers_text",
        ("size", "body_text"),
    )
    readonly_fields = ("state_label", "reason_text", "headers_text", "size", "body_text")

    def get_queryset(self, request: HttpRequest) -> QuerySet[DeadLetter]:
        """Without the bodies: a page of them could fill the memory."""
        return cast("QuerySet[DeadLetter]", super().get_queryset(request).defer("body"))

    def get_urls(self) -> list[URLPattern]:
        """The addresses of the two buttons."""
        requeue = self.admin_site.admin_view(require_POST(self.requeue_view))
        drop = self.admin_site.admin_view(require_POST(self.drop_view))
        return [
            path("<int:pk>/requeue", requeue, name="runtime_deadletter_requeue"),
            path("<int:pk>/drop", drop, name="runtime_deadletter_drop"),
            *super().get_urls(),
        ]

    @admin.display(description=_("reason"), ordering="reason")
    def short_reason(self, letter: DeadLetter) -> str:
        """The beginning of the reason."""
        reason = printable(letter.reason) or gettext("no reason given")
        return reason if len(reason) <= SHOWN_REASON else f"{reason[:SHOWN_REASON]}…"

    @admin.display(description=_("size"), ordering="body_size")
    def size(self, letter: DeadLetter) -> str:
        """The size of the body."""
        return filesizeformat(letter.body_size)

    @display(
        description=_("state"),
        ordering="state",
        label={
            DeadLetterState.HELD: "warning",
            DeadLetterState.REQUEUED: "success",
            DeadLetterState.DROPPED: "info",
        },
    )
    def state_label(self, letter: DeadLetter) -> tuple[str, str]:
        """The state, coloured."""
        return letter.state, letter.get_state_display()

    @admin.display(description=_("reason"))
    def reason_text(self, letter: DeadLetter) -> SafeString:
        """The whole reason."""
        return format_html(PRE, printable(letter.reason) or gettext("no reason given"))

    @admin.display(description=_("headers"))
    def headers_text(self, letter: DeadLetter) -> SafeString:
        """The message's own headers."""
        return _json(mask(letter.headers))

    @admin.display(description=_("body"))
    def body_text(self, letter: DeadLetter) -> SafeString:
        """What can be read of the body."""
        return _body(letter.body)

    @admin.action(description=_("Requeue"), permissions=["decide"])
    def requeue_selected(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> None:
        """Send all selected back to their queues."""
        done = self._each(request, queryset, self._requeue)
        if done:
            text = ngettext("%(n)d message was sent back.", "%(n)d messages were sent back.", done)
            messages.success(request, text % {"n": done})

    @admin.action(description=_("Drop"), permissions=["decide"])
    @asks_first(verb=_("Drop"), loss=_("They are given up: nobody gets what they say."))
    def drop_selected(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> None:
        """Give up all selected."""
        done = self._each(request, queryset, self._drop)
        if done:
            text = ngettext("%(n)d message was dropped.", "%(n)d messages were dropped.", done)
            messages.success(request, text % {"n": done})

    def requeue_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Send one back."""
        return self._one(request, pk, self._requeue, gettext("The message was sent back."))

    def drop_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Give one up, after a question."""
        letter = self._letter(request, pk)
        asked = ask_first(
            request,
            verb=gettext("Drop"),
            loss=gettext("It is given up: nobody gets what it says."),
            ids=[pk],
            names=[letter],
            back=reverse("admin:runtime_deadletter_change", args=[pk]),
        )
        return asked or self._one(request, pk, self._drop, gettext("The message was dropped."))

    def _letter(self, request: HttpRequest, pk: int) -> DeadLetter:
        letter = DeadLetter.objects.filter(pk=pk).first()
        if letter is None or not self.has_decide_permission(request):
            raise Http404
        return letter

    def _one(
        self,
        request: HttpRequest,
        pk: int,
        decide: Callable[[HttpRequest, DeadLetter], None],
        done: str,
    ) -> HttpResponse:
        letter = self._letter(request, pk)
        try:
            decide(request, letter)
        except RuntimeRefusal as error:
            messages.error(request, str(error))
        else:
            messages.success(request, done)
        return HttpResponseRedirect(reverse("admin:runtime_deadletter_change", args=[pk]))

    def _each(
        self,
        request: HttpRequest,
        letters: QuerySet[DeadLetter],
        decide: Callable[[HttpRequest, DeadLetter], None],
    ) -> int:
        """Each in its own transaction; what was refused is told once for each reason."""
        done = 0
        refused: dict[str, int] = {}
        ids = list(letters.order_by("id").values_list("pk", flat=True))
        for start in range(0, len(ids), CHUNK):
            for letter in DeadLetter.objects.filter(pk__in=ids[start : start + CHUNK]):
                try:
                    decide(request, letter)
                    done += 1
                except RuntimeRefusal as error:
                    refused[str(error)] = refused.get(str(error), 0) + 1
        for reason, count in refused.items():
            messages.error(request, f"{count} × {reason}" if count > 1 else reason)
        return done

    def _requeue(self, request: HttpRequest, letter: DeadLetter) -> None:
        services.requeue_dead_letter(letter=letter, actor=person_of(request))

    def _drop(self, request: HttpRequest, letter: DeadLetter) -> None:
        services.drop_dead_letter(letter=letter, actor=person_of(request))


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
class DaemonAdmin(_Machinery):
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
        return _json(mask(daemon.detail))

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


@admin.register(OutboxMessage)
class OutboxMessageAdmin(_Machinery):
    """What is committed and not yet published; empty while all is well."""

    list_display = ("message_id", "target", "created_at", "attempts", "next_try_at", "error")
    search_fields = ("=message_id", "key", "error")
    ordering = ("id",)
    fields = (
        "message_id",
        ("exchange", "key"),
        ("created_at", "next_try_at"),
        ("attempts", "ttl_seconds"),
        "error",
        ("priority", "persistent", "mandatory"),
        "headers_text",
        "body_text",
    )
    readonly_fields = ("headers_text", "body_text")

    def get_queryset(self, request: HttpRequest) -> QuerySet[OutboxMessage]:
        """Without the bodies."""
        return cast("QuerySet[OutboxMessage]", super().get_queryset(request).defer("body"))

    @admin.display(description=_("queue"), ordering="key")
    def target(self, message: OutboxMessage) -> str:
        """Where it goes."""
        return f"{message.exchange}: {message.key}" if message.exchange else message.key

    @admin.display(description=_("headers"))
    def headers_text(self, message: OutboxMessage) -> SafeString:
        """The message's own headers."""
        return _json(mask(message.headers))

    @admin.display(description=_("body"))
    def body_text(self, message: OutboxMessage) -> SafeString:
        """What can be read of the body."""
        return _body(message.body)
