"""The ledger: one row for each routed item, what is counted of them, and what finds them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.projects.models import Project
from apps.routing.engine.steps import Step, read_steps
from apps.routing.querysets import RESUBMITTABLE, RoutedItemQuerySet, ValuePageQuerySet
from apps.routing.states import ACTIVE, FINAL, ItemState

NAME_CHARACTERS = 200


class RoutedItem(models.Model):
    """One item, from its arrival to its one final state.

    ``generation`` grows with every move and every claim: who holds an older one has lost the
    item to somebody quicker. ``due_at`` is when somebody must look at an open item again: the end
    of the lease of whoever works on it, the end of a wait, or the deadline of its result.
    """

    # Neither constraint nor index: items come by the thousand, and go before their project does.
    project = models.ForeignKey(
        Project,
        verbose_name=_("project"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    task_uuid = models.UUIDField(
        _("task UUID"), editable=False, help_text=_("given by the router, and never changed")
    )
    identity = models.UUIDField(
        _("identity"),
        null=True,
        blank=True,
        editable=False,
        help_text=_("digest of the inbound and its message, if it can be told from others"),
    )
    inbound = models.CharField(_("inbound"), max_length=NAME_CHARACTERS)
    outbound = models.CharField(_("outbound"), max_length=NAME_CHARACTERS, blank=True)
    state = models.CharField(_("state"), max_length=10, choices=ItemState.choices)
    generation = models.PositiveIntegerField(
        _("generation"), default=1, help_text=_("grows with every move and every claim")
    )
    attempts = models.PositiveIntegerField(
        _("attempts"),
        default=1,
        help_text=_("how often a router has begun with it since it last got anywhere"),
    )
    due_at = models.DateTimeField(
        _("due at"), null=True, blank=True, help_text=_("when a router looks at it again")
    )
    received_at = models.DateTimeField(_("received at"))
    changed_at = models.DateTimeField(_("changed at"))
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)
    routed_count = models.PositiveIntegerField(
        _("times routed"), default=0, help_text=_("by a rule or as a failback")
    )
    retry_times = models.PositiveIntegerField(
        _("retries"), default=0, help_text=_("in the outbound where it is now")
    )
    group_retry_times = models.PositiveIntegerField(
        _("retries of the group"), default=0, help_text=_("wherever it was sent again")
    )
    rules_version = models.PositiveBigIntegerField(
        _("rules version"), default=0, help_text=_("that it was last routed by; 0 is none")
    )
    reason = models.CharField(_("reason"), max_length=40, blank=True)
    detail = models.CharField(_("detail"), max_length=500, blank=True)
    # The JSON as it is: no database has to understand it, and 1.0 stays 1.0.
    item = models.TextField(_("item"))
    # See engine/steps.py; appended to without being read.
    steps = models.TextField(_("steps"), blank=True)
    step_count = models.PositiveIntegerField(_("number of steps"), default=0)
    # The two ends of a resubmission, by task_uuid: either may outlive the other.
    resubmit_of = models.UUIDField(_("resubmits"), null=True, blank=True, editable=False)
    replaced_by = models.UUIDField(_("resubmitted as"), null=True, blank=True, editable=False)

    objects = RoutedItemQuerySet.as_manager()

    class Meta:
        verbose_name = _("routed item")
        verbose_name_plural = _("routed items")
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=ACTIVE, ended_at__isnull=True, due_at__isnull=False)
                | Q(state__in=FINAL, ended_at__isnull=False, due_at__isnull=True),
                name="routing_item_open_iff_due",
            ),
            models.UniqueConstraint(fields=["task_uuid", "project"], name="routing_item_uuid"),
            models.UniqueConstraint(
                fields=["identity"],
                name="routing_item_identity",
                condition=Q(identity__isnull=False),
            ),
        ]
        # On PostgreSQL every move writes an entry into every index whose condition the row
        # meets, so each is as small as what asks for it.
        indexes = [
            models.Index(
                fields=["state", "due_at"],
                name="routing_item_due",
                condition=Q(due_at__isnull=False),
            ),
            models.Index(
                fields=["project", "outbound", "id"],
                name="routing_item_parked",
                condition=Q(state=ItemState.PARKED),
            ),
            models.Index(
                fields=["project", "state", "id"],
                name="routing_item_dead_letter",
                condition=Q(state__in=RESUBMITTABLE),
            ),
            models.Index(
                fields=["ended_at"], name="routing_item_ended", condition=Q(ended_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return str(self.task_uuid)

    @property
    def story(self) -> list[Step]:
        """Its steps, the oldest first."""
        return read_steps(self.steps)

    @property
    def is_final(self) -> bool:
        """Whether it has ended."""
        return self.state in FINAL


class Tally(models.Model):
    """A change of a count, made by the transaction that makes it true; the sum is the count.

    Only ever added, so that routers never wait for each other's counters; a sweep folds them.
    """

    project = models.ForeignKey(
        Project,
        verbose_name=_("project"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    inbound = models.CharField(_("inbound"), max_length=NAME_CHARACTERS)
    outbound = models.CharField(_("outbound"), max_length=NAME_CHARACTERS, blank=True)
    # Or one of the words of ``CountedEvent``.
    what = models.CharField(_("what is counted"), max_length=12, help_text=_("a state or an event"))
    amount = models.BigIntegerField(_("amount"))

    objects: ClassVar[models.Manager[Tally]] = models.Manager()

    class Meta:
        verbose_name = _("tally")
        verbose_name_plural = _("tallies")

    def __str__(self) -> str:
        return f"{self.inbound} {self.outbound} {self.what} {self.amount:+d}"


class ValuePage(models.Model):
    """The fingerprints of the values of some items, written with them: see engine/fingerprints.py.

    A search reads pages, not items; pages of few items are put together by a sweep.
    """

    project = models.ForeignKey(
        Project,
        verbose_name=_("project"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    at = models.DateTimeField(_("at"), help_text=_("written, or last seen to be of use"))
    # Ids, eight bytes each, little-endian.
    items = models.BinaryField(_("items"))
    item_count = models.PositiveIntegerField(_("number of items"))
    fingerprints = models.BinaryField(_("fingerprints of values"))

    objects = ValuePageQuerySet.as_manager()

    class Meta:
        verbose_name = _("value page")
        verbose_name_plural = _("value pages")
        indexes = [models.Index(fields=["project", "id"], name="routing_page_of_project")]

    def __str__(self) -> str:
        return f"{self.item_count} items"


class RouterReport(models.Model):
    """What one router last said of the inbounds and outbounds of one project."""

    # Of the router's process: see runtime's Daemon.
    router = models.CharField(_("router"), max_length=200)
    project = models.ForeignKey(
        Project,
        verbose_name=_("project"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    rules_version = models.PositiveBigIntegerField(_("rules version"), default=0)
    at = models.DateTimeField(_("at"))
    # See engine/reports.py.
    reports = models.JSONField(_("reports"), default=dict)

    objects: ClassVar[models.Manager[RouterReport]] = models.Manager()

    class Meta:
        verbose_name = _("router report")
        verbose_name_plural = _("router reports")
        constraints = [
            models.UniqueConstraint(fields=["router", "project"], name="routing_report_of_router")
        ]

    def __str__(self) -> str:
        return f"{self.router} {self.project_id}"


class ServerReport(models.Model):
    """Whether one web process listens where the rules of one project want it to (seed S2.9)."""

    # Host and process id.
    process = models.CharField(_("process"), max_length=200)
    project = models.ForeignKey(
        Project,
        verbose_name=_("project"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    address = models.CharField(_("address"), max_length=250)
    # Why it does not listen; "" when it does.
    problem = models.CharField(_("problem"), max_length=500, blank=True)
    at = models.DateTimeField(_("at"))

    objects: ClassVar[models.Manager[ServerReport]] = models.Manager()

    class Meta:
        verbose_name = _("server report")
        verbose_name_plural = _("server reports")
        constraints = [
            models.UniqueConstraint(fields=["process", "project"], name="routing_server_of_process")
        ]

    def __str__(self) -> str:
        return f"{self.process} {self.address}"
