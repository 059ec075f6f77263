"""Incidents and their history, event cursors, start times of conditions, and muted rules."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.access.models import User
from apps.alerts.querysets import IncidentQuerySet, RuleMuteQuerySet
from apps.alerts.states import IncidentState, Severity, Step
from apps.projects.models import Project


class Incident(models.Model):
    """Incident opened by an alert rule; repeated detections while it is open are counted in it.

    Texts are rendered from ``source`` and ``facts`` when shown, in the reader's language.
    """

    # None: belongs to the platform, or its project was deleted (``project_name`` keeps the name).
    project = models.ForeignKey(
        Project, verbose_name=_("project"), null=True, on_delete=models.SET_NULL, related_name="+"
    )
    project_name = models.CharField(_("project name"), max_length=200, blank=True, default="")
    rule = models.CharField(_("rule"), max_length=64)
    # Version of the configuration that defines the rule; 0 for a built-in rule.
    version = models.PositiveIntegerField(_("rule version"), default=0)
    # True for a platform or built-in rule, which also covers projects.
    by_platform = models.BooleanField(_("platform rule"), default=False)
    # Deduplication key within the rule: the label of a series, or the key of an occurrence.
    key = models.CharField(_("object"), max_length=200, blank=True, default="")
    # Name of the series, event or condition, and the rule's condition when the incident opened.
    source = models.CharField(_("watched"), max_length=64)
    condition = models.JSONField(_("condition"), default=dict)
    severity = models.CharField(_("severity"), max_length=16, choices=Severity.choices)
    state = models.CharField(
        _("state"), max_length=16, choices=IncidentState.choices, default=IncidentState.OPEN
    )
    facts = models.JSONField(_("details"), default=dict)
    # Advice from the rule's description.
    advice = models.CharField(_("what to do"), max_length=500, blank=True, default="")
    address = models.CharField(_("page"), max_length=300, blank=True, default="")
    value = models.FloatField(_("value"), null=True)
    count = models.PositiveIntegerField(_("occurrences"), default=1)
    # Number of reopenings shortly after a recovery.
    reopened = models.PositiveIntegerField(_("reopened"), default=0)
    # Start of the problem as far as known; the incident opens after the rule's ``for_seconds``.
    began_at = models.DateTimeField(_("began at"), null=True)
    opened_at = models.DateTimeField(_("opened at"))
    seen_at = models.DateTimeField(_("last seen at"))
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)
    acknowledged_at = models.DateTimeField(_("acknowledged at"), null=True, blank=True)
    acknowledged_by = models.ForeignKey(
        User,
        verbose_name=_("acknowledged by"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    # Reminders are paused until this time.
    snoozed_until = models.DateTimeField(_("snoozed until"), null=True, blank=True)
    # Number of escalation steps taken, and the time of the last notification.
    escalated = models.PositiveSmallIntegerField(_("escalation steps"), default=0)
    told_at = models.DateTimeField(_("last notified at"), null=True, blank=True)

    objects = IncidentQuerySet["Incident"].as_manager()

    class Meta:
        verbose_name = _("incident")
        verbose_name_plural = _("incidents")
        ordering: ClassVar = ["-opened_at", "-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["project", "rule", "key"],
                condition=Q(state="open"),
                name="alerts_one_open_incident",
            ),
            models.UniqueConstraint(
                fields=["rule", "key"],
                condition=Q(state="open", project=None),
                name="alerts_one_open_of_platform",
            ),
            models.CheckConstraint(
                condition=Q(state__in=IncidentState.values), name="alerts_incident_state_known"
            ),
            models.CheckConstraint(
                condition=Q(severity__in=Severity.values), name="alerts_severity_known"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["rule", "key", "-ended_at"], name="alerts_ended_of_rule"),
            models.Index(fields=["-opened_at", "-id"], name="alerts_newest_incident"),
            models.Index(fields=["project", "-opened_at"], name="alerts_incidents_of_project"),
        ]

    def __str__(self) -> str:
        return f"{self.rule} {self.key}".rstrip()

    @property
    def is_open(self) -> bool:
        return self.state == IncidentState.OPEN

    @property
    def since(self) -> datetime:
        """Return when the problem began, as far as known."""
        return self.began_at or self.opened_at


class IncidentNote(models.Model):
    """History entry of an incident, for example opened, acknowledged or escalated."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="notes")
    at = models.DateTimeField(_("at"))
    what = models.CharField(_("action"), max_length=32, choices=Step.choices)
    # User name; "" for the monitor.
    by = models.CharField(_("by"), max_length=150, blank=True, default="")
    detail = models.JSONField(_("detail"), default=dict)

    class Meta:
        verbose_name = _("incident history entry")
        verbose_name_plural = _("incident history")
        ordering: ClassVar = ["id"]

    def __str__(self) -> str:
        return f"{self.what} {self.at}"


class ProcessedEvent(models.Model):
    """ID of a processed event. Sources are polled with an overlap, so events arrive repeatedly."""

    source = models.CharField(max_length=64)
    happening = models.CharField(max_length=100)
    at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "alerts_seenhappening"
        verbose_name = _("processed event")
        verbose_name_plural = _("processed events")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["source", "happening"], name="alerts_seen_once")
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.happening}"


class SourceMark(models.Model):
    """Cursor of an event source. Events before ``began_at``, the first poll, open no incidents."""

    source = models.CharField(max_length=64, unique=True)
    began_at = models.DateTimeField()
    read_at = models.DateTimeField()

    class Meta:
        verbose_name = _("event source cursor")
        verbose_name_plural = _("event source cursors")

    def __str__(self) -> str:
        return self.source


class OngoingCondition(models.Model):
    """Start time of a condition, from which the ``for_seconds`` of rules is counted.

    Many sources know only that a condition holds now. The monitor's first observation is kept in
    the database, so that the next leader continues the count.
    """

    source = models.CharField(max_length=64)
    happening = models.CharField(max_length=300)
    since = models.DateTimeField()
    # Last observation; after a gap in monitoring the count starts again.
    seen_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "alerts_lastinghappening"
        verbose_name = _("ongoing condition")
        verbose_name_plural = _("ongoing conditions")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["source", "happening"], name="alerts_lasting_once")
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.happening}"


class RuleMute(models.Model):
    """Muted rule: no notifications until ``until``; incidents still open."""

    # None: muted in every project.
    project = models.ForeignKey(
        Project, verbose_name=_("project"), null=True, on_delete=models.CASCADE, related_name="+"
    )
    rule = models.CharField(_("rule"), max_length=64)
    until = models.DateTimeField(_("until"))
    by = models.CharField(_("by"), max_length=150)
    note = models.CharField(_("note"), max_length=500, blank=True, default="")

    objects = RuleMuteQuerySet["RuleMute"].as_manager()

    class Meta:
        verbose_name = _("muted rule")
        verbose_name_plural = _("muted rules")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "rule"], name="alerts_mute_once"),
            models.UniqueConstraint(
                fields=["rule"], condition=Q(project=None), name="alerts_platform_mute_once"
            ),
        ]

    def __str__(self) -> str:
        return self.rule
