"""Notification channels and the notifications sent through them."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings as installation
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.access.models import User
from apps.alerts.models.incidents import Incident
from apps.alerts.querysets import ChannelQuerySet, NoticeQuerySet
from apps.alerts.states import ChannelKind, NoticeKind, NoticeProblem, NoticeState
from apps.projects.models import Project
from apps.runtime.fields import SecretTextField


class Channel(models.Model):
    """Notification channel, named by alert rules. Its secrets are write-only."""

    # None: of the platform.
    project = models.ForeignKey(
        Project,
        verbose_name=_("project"),
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text=_("Leave empty for a platform channel."),
    )
    name = models.CharField(
        _("name"), max_length=64, validators=[RegexValidator(r"^[a-z][a-z0-9_-]*\Z")]
    )
    kind = models.CharField(_("kind"), max_length=16, choices=ChannelKind.choices)
    # Set for the channel that mails to a user, which no list shows.
    person = models.OneToOneField(
        User,
        verbose_name=_("user"),
        null=True,
        blank=True,
        editable=False,
        on_delete=models.CASCADE,
        related_name="+",
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    # Settings by channel kind, see engine.channels: mail addresses, the gateway's template, ...
    settings = models.JSONField(_("settings"), default=dict, blank=True)
    # JSON object with the webhook URL of a robot, a signing key, or a gateway's token.
    secrets = SecretTextField(_("secrets"))
    language = models.CharField(
        _("language"), max_length=10, choices=installation.LANGUAGES, default="en"
    )
    created_at = models.DateTimeField(_("created at"), default=timezone.now)
    updated_at = models.DateTimeField(_("changed at"), auto_now=True)

    objects = ChannelQuerySet["Channel"].as_manager()

    class Meta:
        verbose_name = _("channel")
        verbose_name_plural = _("channels")
        ordering: ClassVar = ["project", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "name"], name="alerts_channel_once"),
            models.UniqueConstraint(
                fields=["name"], condition=Q(project=None), name="alerts_platform_channel_once"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=ChannelKind.values), name="alerts_channel_kind_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name if self.person is None else f"@{self.person.username}"


class Notice(models.Model):
    """Notification about one incident, or the end of one run, for one channel.

    Delivered at least once: the row is the truth, a task sends it, a periodic sweep retries it.
    Receivers recognise a redelivery by the message ID.
    """

    project = models.ForeignKey(
        Project, verbose_name=_("project"), null=True, on_delete=models.SET_NULL, related_name="+"
    )
    # None for a test notification, and for the end of a run.
    incident = models.ForeignKey(
        Incident,
        verbose_name=_("incident"),
        null=True,
        on_delete=models.CASCADE,
        related_name="notices",
    )
    channel = models.ForeignKey(
        Channel,
        verbose_name=_("channel"),
        null=True,
        on_delete=models.SET_NULL,
        related_name="notices",
    )
    channel_name = models.CharField(_("channel"), max_length=151)
    # The run that ended, with what was known then; runs may be deleted before the notification.
    run = models.BigIntegerField(_("run"), null=True, blank=True)
    facts = models.JSONField(_("facts"), default=dict, db_default={}, blank=True)
    kind = models.CharField(_("kind"), max_length=16, choices=NoticeKind.choices)
    state = models.CharField(
        _("state"), max_length=16, choices=NoticeState.choices, default=NoticeState.WAITING
    )
    created_at = models.DateTimeField(_("created at"))
    # Lies in the future while a task has claimed the row, so a crashed task only delays the
    # notification.
    next_try_at = models.DateTimeField(_("next try at"), null=True, blank=True)
    # End of the quiet hours that defer the notification.
    not_before = models.DateTimeField(_("deferred until"), null=True, blank=True)
    # Number of attempts; the last problem and response, with secrets masked.
    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0)
    problem = models.CharField(
        _("problem"), max_length=16, choices=NoticeProblem.choices, blank=True, default=""
    )
    answer = models.CharField(_("response"), max_length=500, blank=True, default="")
    # Recipients already reached: a retry goes only to the others.
    delivered = models.JSONField(_("delivered to"), default=list, blank=True)
    # The notification whose message included this one: in a storm, one digest covers many.
    message = models.BigIntegerField(_("combined into"), null=True, blank=True)
    sent_at = models.DateTimeField(_("sent at"), null=True, blank=True)
    # The notification that a user resent as this one.
    resent_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    objects = NoticeQuerySet["Notice"].as_manager()

    class Meta:
        verbose_name = _("notification")
        verbose_name_plural = _("notifications")
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(state__in=NoticeState.values), name="alerts_notice_state_known"
            )
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["next_try_at"], name="alerts_notices_due", condition=Q(state="waiting")
            ),
            models.Index(fields=["channel", "-sent_at"], name="alerts_notices_of_channel"),
            models.Index(
                fields=["run"], name="alerts_notices_of_run", condition=Q(run__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.channel_name}"
