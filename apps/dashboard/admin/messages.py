"""Admin of dead letters and of unsent messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.contrib.filters.admin import ChoicesDropdownFilter, FieldTextFilter
from unfold.decorators import display

from apps.access.admin.base import person_of
from apps.access.admin.confirm import ask_first, asks_first
from apps.access.services import mask
from apps.dashboard import services
from apps.dashboard.admin.machinery import PRE, SHOWN_REASON, PlatformAdmin, as_json
from apps.runtime.engine.preview import preview, printable
from apps.runtime.errors import RuntimeRefusal
from apps.runtime.models import DeadLetter, OutboxMessage
from apps.runtime.states import DeadLetterState

M = TypeVar("M", bound=Model)
Decide = Callable[[HttpRequest, M], None]
# Rows read at once by bulk actions: bodies may have megabytes.
CHUNK = 20


class _MessageAdmin(PlatformAdmin):
    """Base of the admin of messages, with one URL for each of ``buttons``."""

    # (last part of the URL, name of the view)
    buttons: tuple[tuple[str, str], ...] = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Defer bodies: a page of them could fill the memory."""
        return cast("QuerySet[Any]", super().get_queryset(request).defer("body"))

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the buttons."""
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        pages = {verb: require_POST(getattr(self, view)) for verb, view in self.buttons}
        return [
            *(
                path(f"<int:pk>/{verb}", self.admin_site.admin_view(page), name=f"{name}_{verb}")
                for verb, page in pages.items()
            ),
            *super().get_urls(),
        ]

    @admin.display(description=_("headers"))
    def headers_text(self, message: Any) -> SafeString:
        """Headers as JSON; values with secret names are masked."""
        return as_json(mask(message.headers))

    @admin.display(description=_("body"))
    def body_text(self, message: Any) -> SafeString:
        """The decoded body."""
        return _body(message.body)

    def found(self, request: HttpRequest, pk: int) -> Any:
        """Return the message; 404 unless the user may act on it."""
        message = self.model._default_manager.filter(pk=pk).first()
        if message is None or not self.has_decide_permission(request):
            raise Http404
        return message

    def one(
        self, request: HttpRequest, message: Any, decide: Decide[Any], done: str, back: str
    ) -> HttpResponse:
        """Apply ``decide`` to a message and redirect to ``back`` with the outcome."""
        try:
            decide(request, message)
        except RuntimeRefusal as error:
            messages.error(request, str(error))
        else:
            messages.success(request, done)
        return HttpResponseRedirect(back)

    def each(self, request: HttpRequest, rows: QuerySet[Any], decide: Decide[Any]) -> int:
        """Apply ``decide`` to each row in its own transaction; return the number of successes.

        Each reason of a failure is shown once, with its count.
        """
        done = 0
        failures: dict[str, int] = {}
        ids = list(rows.order_by("id").values_list("pk", flat=True))
        for start in range(0, len(ids), CHUNK):
            for row in self.model._default_manager.filter(pk__in=ids[start : start + CHUNK]):
                try:
                    decide(request, row)
                    done += 1
                except RuntimeRefusal as error:
                    failures[str(error)] = failures.get(str(error), 0) + 1
        for reason, count in failures.items():
            messages.error(request, f"{count} × {reason}" if count > 1 else reason)
        return done


@admin.register(DeadLetter)
class DeadLetterAdmin(_MessageAdmin):
    """Messages that no consumer could process; requeue or drop them."""

    list_display = ("short_reason", "queue", "size", "died_at", "state_label", "resolved_by")
    list_filter = (
        ("state", ChoicesDropdownFilter),
        ("queue", FieldTextFilter),
        ("reason", FieldTextFilter),
    )
    list_filter_submit = True
    search_fields = ("=message_id", "queue", "reason")
    search_help_text = _("Message ID, queue or reason")
    ordering = ("-died_at", "-id")
    actions = ("requeue_selected", "drop_selected")
    buttons = (("requeue", "requeue_view"), ("drop", "drop_view"))
    fields = (
        ("state_label", "resolved_by", "resolved_at"),
        "reason_text",
        ("queue", "died_at", "stored_at"),
        ("message_id", "exchange", "key", "project"),
        "headers_text",
        ("size", "body_text"),
    )
    readonly_fields = ("state_label", "reason_text", "headers_text", "size", "body_text")

    @admin.display(description=_("reason"), ordering="reason")
    def short_reason(self, letter: DeadLetter) -> str:
        reason = printable(letter.reason) or gettext("no reason given")
        return reason if len(reason) <= SHOWN_REASON else f"{reason[:SHOWN_REASON]}…"

    @admin.display(description=_("size"), ordering="body_size")
    def size(self, letter: DeadLetter) -> str:
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
        return letter.state, letter.get_state_display()

    @admin.display(description=_("reason"))
    def reason_text(self, letter: DeadLetter) -> SafeString:
        return format_html(PRE, printable(letter.reason) or gettext("no reason given"))

    @admin.action(description=_("Requeue"), permissions=["decide"])
    def requeue_selected(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> None:
        done = self.each(request, queryset, self._requeue)
        if done:
            text = ngettext("%(n)d message was requeued.", "%(n)d messages were requeued.", done)
            messages.success(request, text % {"n": done})

    @admin.action(description=_("Drop"), permissions=["decide"])
    @asks_first(verb=_("Drop"), loss=_("The messages are discarded."))
    def drop_selected(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> None:
        done = self.each(request, queryset, self._drop)
        if done:
            text = ngettext("%(n)d message was dropped.", "%(n)d messages were dropped.", done)
            messages.success(request, text % {"n": done})

    def requeue_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        letter, done = self.found(request, pk), gettext("The message was requeued.")
        return self.one(request, letter, self._requeue, done, self._page(pk))

    def drop_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Drop a dead letter after a confirmation."""
        letter, done = self.found(request, pk), gettext("The message was dropped.")
        confirmation = ask_first(
            request,
            verb=gettext("Drop"),
            loss=gettext("The message is discarded."),
            ids=[pk],
            names=[letter],
            back=self._page(pk),
        )
        return confirmation or self.one(request, letter, self._drop, done, self._page(pk))

    def _page(self, pk: int) -> str:
        return reverse("admin:runtime_deadletter_change", args=[pk])

    def _requeue(self, request: HttpRequest, letter: DeadLetter) -> None:
        services.requeue_dead_letter(letter=letter, actor=person_of(request))

    def _drop(self, request: HttpRequest, letter: DeadLetter) -> None:
        services.drop_dead_letter(letter=letter, actor=person_of(request))


@admin.register(OutboxMessage)
class OutboxMessageAdmin(_MessageAdmin):
    """Messages that are committed and not yet published; normally empty."""

    list_display = ("message_id", "target", "created_at", "attempts", "next_try_at", "error")
    search_fields = ("=message_id", "key", "error")
    search_help_text = _("Message ID, queue or error")
    ordering = ("id",)
    actions = ("retry_selected", "drop_selected")
    buttons = (("retry", "retry_view"), ("drop", "drop_view"))
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

    @admin.display(description=_("queue"), ordering="key")
    def target(self, message: OutboxMessage) -> str:
        """Exchange and routing key, or the queue."""
        return f"{message.exchange}: {message.key}" if message.exchange else message.key

    @admin.action(description=_("Send now"), permissions=["decide"])
    def retry_selected(self, request: HttpRequest, queryset: QuerySet[OutboxMessage]) -> None:
        done = self.each(request, queryset, self._retry)
        if done:
            text = ngettext("%(n)d message is being sent.", "%(n)d messages are being sent.", done)
            messages.success(request, text % {"n": done})

    @admin.action(description=_("Drop"), permissions=["decide"])
    @asks_first(
        verb=_("Drop"), loss=_("The messages are never sent. Periodic sweeps do their work later.")
    )
    def drop_selected(self, request: HttpRequest, queryset: QuerySet[OutboxMessage]) -> None:
        done = self.each(request, queryset, self._drop)
        if done:
            text = ngettext("%(n)d message was dropped.", "%(n)d messages were dropped.", done)
            messages.success(request, text % {"n": done})

    def retry_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Send one now and show the list: the row is deleted as soon as it is sent."""
        message, done = self.found(request, pk), gettext("The message is being sent.")
        return self.one(request, message, self._retry, done, self._list())

    def drop_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Drop an unsent message after a confirmation."""
        message, done = self.found(request, pk), gettext("The message was dropped.")
        confirmation = ask_first(
            request,
            verb=gettext("Drop"),
            loss=gettext("The message is never sent. A periodic sweep does its work later."),
            ids=[pk],
            names=[message],
            back=reverse("admin:runtime_outboxmessage_change", args=[pk]),
        )
        return confirmation or self.one(request, message, self._drop, done, self._list())

    def _list(self) -> str:
        return reverse("admin:runtime_outboxmessage_changelist")

    def _retry(self, request: HttpRequest, message: OutboxMessage) -> None:
        services.retry_outbox_message(message=message, actor=person_of(request))

    def _drop(self, request: HttpRequest, message: OutboxMessage) -> None:
        services.drop_outbox_message(message=message, actor=person_of(request))


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
        note = gettext("%(form)s, truncated") % {"form": note}
    return format_html("<p>{}</p>" + PRE, note, shown.text)
