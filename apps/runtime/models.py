"""Outbox, processed messages, heartbeats, worker leases, idempotency keys and dead letters."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.runtime.querysets import WorkerLeaseQuerySet
from apps.runtime.states import DaemonState, DeadLetterState


class OutboxMessage(models.Model):
    """A message written in the transaction whose effect it announces; gone once confirmed.

    ``next_try_at`` is null for a message that is due at once. A relay that claims a message
    sets it a little into the future, so that a relay that dies delays it and loses nothing.
    """

    message_id = models.CharField(_("message id"), max_length=255)
    exchange = models.CharField(_("exchange"), max_length=255, blank=True, default="")
    key = models.CharField(_("routing key"), max_length=255)
    body = models.BinaryField(_("body"))
    headers = models.JSONField(_("headers"), default=dict, blank=True)
    ttl_seconds = models.FloatField(_("time to live in seconds"), null=True, blank=True)
    priority = models.PositiveSmallIntegerField(_("priority"), default=0)
    persistent = models.BooleanField(_("persistent"), default=True)
    mandatory = models.BooleanField(_("mandatory"), default=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now)
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    next_try_at = models.DateTimeField(_("next try at"), null=True, blank=True)
    error = models.CharField(_("last error"), max_length=500, blank=True, default="")

    class Meta:
        verbose_name = _("outgoing message")
        verbose_name_plural = _("outgoing messages")
        constraints = [
            # One message id may wait for several queues (two copies of a fanout message were
            # dead-lettered and both requeued), but never twice for the same one.
            models.UniqueConstraint(
                fields=["message_id", "exchange", "key"], name="runtime_outbox_once_per_target"
            )
        ]
        indexes = [
            models.Index(
                fields=["id"], name="runtime_outbox_due_now", condition=Q(next_try_at__isnull=True)
            ),
            models.Index(
                fields=["next_try_at"],
                name="runtime_outbox_due_later",
                condition=Q(next_try_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.exchange or 'queue'}:{self.key} {self.message_id}"


class ProcessedMessage(models.Model):
    """Id of a message whose effect a consumer has committed; redeliveries are ignored."""

    consumer = models.CharField(_("consumer"), max_length=100)
    message_id = models.CharField(_("message id"), max_length=255)
    at = models.DateTimeField(_("at"), default=timezone.now, db_index=True)

    class Meta:
        verbose_name = _("processed message")
        verbose_name_plural = _("processed messages")
        constraints = [
            models.UniqueConstraint(
                fields=["consumer", "message_id"], name="runtime_processed_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.consumer}:{self.message_id}"


class Daemon(models.Model):
    """A long-running process; alive while its heartbeat is recent by the database's clock."""

    kind = models.CharField(_("kind"), max_length=50)
    name = models.CharField(_("name"), max_length=200)
    host = models.CharField(_("host"), max_length=255)
    pid = models.PositiveIntegerField(_("process id"))
    boot = models.CharField(
        _("boot"), max_length=64, help_text=_("Changes with every start of the process.")
    )
    state = models.CharField(
        _("state"), max_length=16, choices=DaemonState.choices, default=DaemonState.STARTING
    )
    version = models.CharField(_("version"), max_length=50, blank=True, default="")
    started_at = models.DateTimeField(_("started at"), default=timezone.now)
    beat_at = models.DateTimeField(_("last heartbeat at"), default=timezone.now, db_index=True)
    detail = models.JSONField(_("detail"), default=dict, blank=True)

    class Meta:
        verbose_name = _("process")
        verbose_name_plural = _("processes")
        constraints = [
            models.UniqueConstraint(fields=["kind", "name"], name="runtime_daemon_unique_name"),
            models.CheckConstraint(
                condition=Q(state__in=DaemonState.values), name="runtime_daemon_state_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class WorkerLease(models.Model):
    """A number that one process at a time may use, such as the worker id of a Snowflake.

    ``generation`` is the fencing token: each new holder increments it. ``high_water_ms`` is the
    highest time (Unix milliseconds) that any holder may have used with this number.
    """

    purpose = models.CharField(_("purpose"), max_length=50)
    number = models.PositiveIntegerField(_("number"))
    owner = models.CharField(_("owner"), max_length=255)
    generation = models.PositiveBigIntegerField(_("generation"), default=1)
    expires_at = models.DateTimeField(_("expires at"))
    high_water_ms = models.BigIntegerField(_("high-water mark in milliseconds"), default=0)

    objects = WorkerLeaseQuerySet["WorkerLease"].as_manager()

    class Meta:
        verbose_name = _("number lease")
        verbose_name_plural = _("number leases")
        constraints = [
            models.UniqueConstraint(
                fields=["purpose", "number"], name="runtime_lease_unique_number"
            )
        ]
        indexes = [models.Index(fields=["purpose", "expires_at"], name="runtime_lease_free")]

    def __str__(self) -> str:
        return f"{self.purpose}:{self.number} ({self.owner})"


class IdempotencyKey(models.Model):
    """Stored response to a REST call with an Idempotency-Key, returned to repeated calls.

    ``status`` is null while the first call is in progress.
    """

    user_id = models.PositiveBigIntegerField(_("user"))
    key = models.CharField(_("key"), max_length=255)
    method = models.CharField(_("method"), max_length=10)
    path = models.CharField(_("path"), max_length=500)
    request_hash = models.CharField(_("hash of the request"), max_length=64)
    status = models.PositiveSmallIntegerField(_("status"), null=True, blank=True)
    body = models.JSONField(_("body"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now, db_index=True)

    class Meta:
        verbose_name = _("idempotency key")
        verbose_name_plural = _("idempotency keys")
        constraints = [
            models.UniqueConstraint(
                fields=["user_id", "key", "method", "path"], name="runtime_idempotency_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.key}"


class DeadLetter(models.Model):
    """A message that no consumer could process, kept whole until a person requeues or drops it.

    ``message_id``, ``queue`` and ``died_at`` together identify one death: a letter that the broker
    redelivers is stored once, and one that is requeued and dies again is a new letter.
    """

    message_id = models.CharField(_("message id"), max_length=255)
    queue = models.CharField(_("queue"), max_length=255, blank=True, default="")
    reason = models.CharField(_("reason"), max_length=1000, blank=True, default="")
    body = models.BinaryField(_("body"))
    body_size = models.PositiveBigIntegerField(_("size in bytes"))
    headers = models.JSONField(_("headers"), default=dict, blank=True)
    exchange = models.CharField(_("exchange"), max_length=255, blank=True, default="")
    key = models.CharField(_("routing key"), max_length=255, blank=True, default="")
    project = models.PositiveBigIntegerField(_("project"), null=True, blank=True)
    died_at = models.DateTimeField(_("dead-lettered at"))
    stored_at = models.DateTimeField(_("stored at"), default=timezone.now)
    state = models.CharField(
        _("state"), max_length=16, choices=DeadLetterState.choices, default=DeadLetterState.HELD
    )
    resolved_by = models.CharField(_("resolved by"), max_length=200, blank=True, default="")
    resolved_at = models.DateTimeField(_("resolved at"), null=True, blank=True)

    class Meta:
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        constraints = [
            models.UniqueConstraint(
                fields=["message_id", "queue", "died_at"], name="runtime_dead_letter_once"
            ),
            models.CheckConstraint(
                condition=Q(state__in=DeadLetterState.values),
                name="runtime_dead_letter_state_known",
            ),
            models.CheckConstraint(
                condition=Q(state=DeadLetterState.HELD, resolved_at__isnull=True)
                | (~Q(state=DeadLetterState.HELD) & Q(resolved_at__isnull=False)),
                name="runtime_dead_letter_resolved_is_final",
            ),
        ]
        indexes = [
            models.Index(
                fields=["-died_at"],
                name="runtime_dead_letter_held",
                condition=Q(state=DeadLetterState.HELD),
            ),
            models.Index(fields=["resolved_at"], name="runtime_dead_letter_resolved"),
        ]

    def __str__(self) -> str:
        return f"{self.queue or '?'} {self.message_id}"
