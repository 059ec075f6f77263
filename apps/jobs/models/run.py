"""Models of runs, their state changes and the commands to runs."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from apps.jobs.models.job import Job
from apps.jobs.querysets import RunQuerySet
from apps.jobs.states import (
    ACTIVE,
    FINAL,
    ReplayMissing,
    RunAsk,
    RunOutcome,
    RunState,
    Trigger,
    allowed_actions,
    outcome_of,
)
from apps.projects.models import Image


class Run(models.Model):
    """Run of a job. Other apps refer to a run by its ``owner``."""

    # The indexes below begin with the job.
    job = models.ForeignKey(
        Job, verbose_name=_("job"), on_delete=models.PROTECT, related_name="runs", db_index=False
    )
    state = models.CharField(
        _("state"), max_length=10, choices=RunState.choices, default=RunState.QUEUED
    )
    reason = models.TextField(_("reason"), blank=True)
    trigger = models.CharField(
        _("trigger"), max_length=10, choices=Trigger.choices, default=Trigger.PERSON
    )
    arguments = models.JSONField(_("arguments"), default=dict, blank=True)
    # Snapshot of the job when the run was queued; the run executes the image of the digest.
    image = models.ForeignKey(
        Image,
        verbose_name=_("image"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="runs",
    )
    image_reference = models.CharField(_("image"), max_length=400, blank=True)
    image_digest = models.CharField(_("digest"), max_length=100, blank=True)
    priority = models.SmallIntegerField(_("priority"), default=0)
    # Topic of lifecycle messages; unchanged if the job is renamed.
    topic = models.CharField(max_length=255, blank=True)
    attempt = models.PositiveSmallIntegerField(_("attempt"), default=1)
    retry_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="retries"
    )
    # Run whose failed requests this run makes again, and the object with these requests.
    requests_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="request_retries"
    )
    requests_object = models.CharField(max_length=500, blank=True, default="", db_default="")
    caused_by = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="caused"
    )
    # Run whose kept pages are read instead of the sites, and what becomes of requests whose page
    # was not kept.
    replay_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="replays"
    )
    replay_missing = models.CharField(
        _("pages that were not kept"),
        max_length=5,
        choices=ReplayMissing.choices,
        default=ReplayMissing.FAIL,
        db_default=ReplayMissing.FAIL,
    )
    # The run is not placed before this time (delay of a retry), nor before ``waits_for`` ends.
    not_before = models.DateTimeField(_("not before"), null=True, blank=True)
    waits_for = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="waiting"
    )
    # Why the run waits: the reasons against each host.
    waiting_reason = models.TextField(_("waits because"), blank=True)
    placed_at = models.DateTimeField(_("placed at"), null=True, blank=True)
    requested_by = models.CharField(_("requested by"), max_length=150, blank=True)
    boot = models.CharField(
        max_length=16, blank=True, help_text=_("Changes with each start of the run.")
    )
    restarts = models.PositiveIntegerField(_("restarts"), default=0)
    # The run is being stopped for a restart.
    restart_wanted = models.BooleanField(default=False)
    # Suspension by the container engine or by signal, for a run that does not answer.
    freeze_wanted = models.BooleanField(default=False)
    frozen = models.BooleanField(_("frozen"), default=False)
    host = models.CharField(_("host"), max_length=200, blank=True)
    container = models.CharField(_("container"), max_length=64, blank=True)
    pid = models.PositiveIntegerField(null=True, blank=True)
    # Identifies the process together with the pid, since pids are reused.
    process_started = models.FloatField(null=True, blank=True)
    watched_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(_("exit code"), null=True, blank=True)
    # Reported by the run at its end; null if not reported.
    requests_total = models.PositiveBigIntegerField(_("requests"), null=True, blank=True)
    requests_failed = models.PositiveBigIntegerField(_("failed requests"), null=True, blank=True)
    items = models.PositiveBigIntegerField(_("items"), null=True, blank=True)
    exceptions = models.PositiveBigIntegerField(_("exceptions"), null=True, blank=True)
    # Checks of its data that do not hold; known once all its items are stored.
    failed_checks = models.PositiveSmallIntegerField(_("failed checks"), default=0, db_default=0)
    created_at = models.DateTimeField(_("created at"))
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=RunState.values), name="jobs_run_state_known"
            ),
            models.CheckConstraint(
                condition=Q(state__in=FINAL, ended_at__isnull=False)
                | Q(state__in=ACTIVE, ended_at__isnull=True),
                name="jobs_run_ended_iff_final",
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True) | Q(ended_at__gte=F("created_at")),
                name="jobs_run_ends_after_it_began",
            ),
            models.UniqueConstraint(fields=["retry_of"], name="jobs_run_retried_once"),
        ]
        indexes = [
            # Partial index of the few active runs among millions. The condition is ``ended_at`` and
            # not a list of states: SQLite does not match a list of seven parameters with a partial
            # index, and would scan the table.
            models.Index(
                fields=["-id"], name="jobs_run_active", condition=Q(ended_at__isnull=True)
            ),
            models.Index(fields=["job", "state", "-id"], name="jobs_run_of_job_so"),
            # Newest ends of few jobs among many: home page of a member of few projects.
            models.Index(
                fields=["job", "-ended_at", "-id"],
                name="jobs_run_end_of_job",
                condition=Q(ended_at__isnull=False),
            ),
            # Declared after the previous index, which begins with the same column: SQLite prefers
            # the later one.
            models.Index(fields=["job", "-id"], name="jobs_run_of_job"),
            # For filtered lists, newest first: without an index, a filter that matches few or no
            # rows scans the table.
            models.Index(fields=["state", "-id"], name="jobs_run_of_state"),
            models.Index(fields=["trigger", "-id"], name="jobs_run_of_trigger"),
            models.Index(fields=["host", "-id"], name="jobs_run_of_host"),
            models.Index(fields=["requested_by", "-id"], name="jobs_run_of_person"),
            models.Index(fields=["created_at", "id"], name="jobs_run_by_creation"),
            models.Index(fields=["state", "-ended_at"], name="jobs_run_ended_so"),
            # The home page and alerts read the newest ends often.
            models.Index(
                fields=["-ended_at", "-id"],
                name="jobs_run_newest_end",
                condition=Q(ended_at__isnull=False),
            ),
            models.Index(
                fields=["-priority", "id"],
                name="jobs_run_waiting",
                condition=Q(state=RunState.QUEUED),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job.name} #{self.pk}"

    @property
    def owner(self) -> str:
        """Key of the run's allocations and counters, such as ``run:7``."""
        return f"run:{self.pk}"

    @property
    def stream(self) -> str:
        """Name of the run's log stream, such as ``run:7``."""
        return self.owner

    @property
    def allowed(self) -> list[RunAsk]:
        """Actions that the state of the run allows."""
        return allowed_actions(
            self.state,
            restart_wanted=self.restart_wanted,
            freeze_wanted=self.freeze_wanted,
            frozen=self.frozen,
        )

    @property
    def outcome(self) -> RunOutcome | None:
        """Outcome by the limits of the job and the checks of its data; None while it is active.

        A run that only makes failed requests again finds fewer items than a whole one.
        """
        return outcome_of(
            self.state,
            total=self.requests_total,
            failed=self.requests_failed,
            allowed_percent=self.job.max_failed_percent,
            exceptions=self.exceptions,
            allowed_exceptions=self.job.max_exceptions,
            items=self.items,
            least_items=None if self.requests_of_id else self.job.min_items,
            failed_checks=self.failed_checks,
        )

    @property
    def status(self) -> RunOutcome | RunState:
        """Status shown on pages: the outcome of an ended run, the state of an active run."""
        return self.outcome or RunState(self.state)

    @property
    def is_active(self) -> bool:
        """Whether the run has not ended."""
        return self.state in ACTIVE


class RunMove(models.Model):
    """State change of a run, with time, actor and reason."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="moves")
    from_state = models.CharField(max_length=10, choices=RunState.choices, blank=True)
    to_state = models.CharField(max_length=10, choices=RunState.choices)
    at = models.DateTimeField()
    actor = models.CharField(max_length=150, blank=True)
    reason = models.TextField(blank=True)

    class Meta:
        verbose_name = _("move of a run")
        verbose_name_plural = _("moves of runs")
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.from_state or '-'} → {self.to_state}"


class RunCommand(models.Model):
    """Command to a run, and its answer.

    The row's ID is sent in the lifecycle message and returned in the answer.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="commands")
    action = models.CharField(_("action"), max_length=10, choices=RunAsk.choices)
    settings = models.JSONField(
        _("settings"), default=dict, blank=True, help_text=_("New settings of the run.")
    )
    boot = models.CharField(max_length=16, blank=True)
    asked_by = models.CharField(_("asked by"), max_length=150, blank=True)
    asked_at = models.DateTimeField(_("asked at"))
    answered_at = models.DateTimeField(_("answered at"), null=True, blank=True)
    accepted = models.BooleanField(_("accepted"), null=True, blank=True)
    answer = models.TextField(_("answer"), blank=True)

    class Meta:
        verbose_name = _("command to a run")
        verbose_name_plural = _("commands to runs")
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(action__in=RunAsk.values), name="jobs_command_action_known"
            )
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.run_id}"
