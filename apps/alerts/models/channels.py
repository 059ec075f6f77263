"""Who is told, how, and what became of every notice."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings as installation
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.alerts.models.incidents import Incident
from apps.alerts.querysets import ChannelQuerySet, NoticeQuerySet
from apps.alerts.states import ChannelKind, NoticeKind, NoticeProblem, NoticeState
from apps.projects.models import Project
from apps.runtime.fields import SecretTextField


class Channel(models.Model):
    """A way to tell somebody; rules name it. What is secret of it is never shown again."""

    # None: of the platform.
    project = models.ForeignKey(
        Project,
        verbose_name=_("project"),
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text=_("Empty: for rules of the platform."),
    )
    name = models.CharField(
        _("name"), max_length=64, validators=[RegexValidator(r"^[a-z][a-z0-9_-]*\Z")]
    )
    kind = models.CharField(_("kind"), max_length=16, choices=ChannelKind.choices)
    enabled = models.BooleanField(_("enabled"), default=True)
    # By kind, see engine.channels: addresses of mail, the gateway's template, ...
    settings = models.JSONField(_("settings"), default=dict, blank=True)
    # A JSON object: the address of a robot, a key to sign with, a token of a gateway.
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
        return self.name


class Notice(models.Model):
    """One thing to tell by one channel: the row is the truth, a task sends it, a sweep is the net.

    It goes out at least once; receivers tell a repetition by its id.
    """

    project = models.ForeignKey(
        Project, verbose_name=_("project"), null=True, on_delete=models.SET_NULL, related_name="+"
    )
    # None: a test.
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
    channel_name = models.CharField(_("channel"), max_length=64)
    kind = models.CharField(_("kind"), max_length=16, choices=NoticeKind.choices)
    state = models.CharField(
        _("state"), max_length=16, choices=NoticeState.choices, default=NoticeState.WAITING
    )
    created_at = models.DateTimeField(_("created at"))
    # While a task has it in hand this lies ahead: one that dies delays it and loses nothing.
    next_try_at = models.DateTimeField(_("next try at"), null=True, blank=True)
    # Quiet hours hold it until then.
    not_before = models.DateTimeField(_("not before"), null=True, blank=True)
    # How often somebody tried; what was wrong last, and what the other side said, without secrets.
    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0)
    problem = models.CharField(
        _("problem"), max_length=16, choices=NoticeProblem.choices, blank=True, default=""
    )
    answer = models.CharField(_("answer"), max_length=500, blank=True, default="")
    # Receivers who have it already: what follows a failure goes only to the others.
    delivered = models.JSONField(_("delivered to"), default=list, blank=True)
    # The notice whose message this one went out with: in a storm one message tells of many.
    message = models.BigIntegerField(_("sent with"), null=True, blank=True)
    sent_at = models.DateTimeField(_("sent at"), null=True, blank=True)
    # The notice that this one sends again, on a person's word.
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
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["next_try_at"], name="alerts_notices_due", condition=Q(state="waiting")
            ),
            models.Index(fields=["channel", "-sent_at"], name="alerts_notices_of_channel"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.channel_name}"
