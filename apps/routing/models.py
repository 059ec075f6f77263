"""Tables of the router: items, counters, search fingerprints, and status reports."""

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
    """An item from its arrival to its single final state.

    ``generation`` is a fencing token: it grows with every move and claim, so a holder with an older
    one has lost the item. ``due_at`` is when a router must process an open item again: the end of a
    lease, the end of a wait, or the deadline of its result.
    """

    # No constraint and no index, for the speed of inserts. Items are deleted before their project.
    project = models.ForeignKey(
        Project,
        verbose_name=_("project"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    task_uuid = models.UUIDField(
        _("task UUID"), editable=False, help_text=_("Assigned by the router; never changes.")
    )
    identity = models.UUIDField(
        _("identity"),
        null=True,
        blank=True,
        editable=False,
        help_text=_("Digest of inbound and message ID; empty if the inbound has no message IDs."),
    )
    inbound = models.CharField(_("inbound"), max_length=NAME_CHARACTERS)
    outbound = models.CharField(_("outbound"), max_length=NAME_CHARACTERS, blank=True)
    state = models.CharField(_("state"), max_length=10, choices=ItemState.choices)
    generation = models.PositiveIntegerField(
        _("generation"), default=1, help_text=_("Grows with every move and every claim.")
    )
    attempts = models.PositiveIntegerField(
        _("attempts"),
        default=1,
        help_text=_(
            "Number of times routers started processing it since its last change of state."
        ),
    )
    due_at = models.DateTimeField(
        _("due at"), null=True, blank=True, help_text=_("When a router processes it again.")
    )
    received_at = models.DateTimeField(_("received at"))
    changed_at = models.DateTimeField(_("changed at"))
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)
    routed_count = models.PositiveIntegerField(
        _("times routed"), default=0, help_text=_("Including failbacks.")
    )
    retry_times = models.PositiveIntegerField(
        _("retries"), default=0, help_text=_("At the current outbound.")
    )
    group_retry_times = models.PositiveIntegerField(
        _("total retries"), default=0, help_text=_("At all outbounds.")
    )
    rules_version = models.PositiveBigIntegerField(
        _("rules version"),
        default=0,
        help_text=_("Version of the rules that last routed it; 0: none."),
    )
    reason = models.CharField(_("reason"), max_length=40, blank=True)
    detail = models.CharField(_("detail"), max_length=500, blank=True)
    # JSON as text, because a JSON column would change numbers such as 1.0.
    item = models.TextField(_("task"))
    # Lines of engine/steps.py: new steps are appended without reading the old ones.
    steps = models.TextField(_("steps"), blank=True)
    step_count = models.PositiveIntegerField(_("number of steps"), default=0)
    # Links between an item and its resubmission, by task_uuid: either may be deleted first.
    resubmit_of = models.UUIDField(_("resubmission of"), null=True, blank=True, editable=False)
    replaced_by = models.UUIDField(_("resubmitted as"), null=True, blank=True, editable=False)

    objects = RoutedItemQuerySet.as_manager()

    class Meta:
        verbose_name = _("routed task")
        verbose_name_plural = _("routed tasks")
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
        # On PostgreSQL every update writes to each index whose condition the row meets. Partial
        # indexes keep that number small.
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
        """Return the steps of the item, oldest first."""
        return read_steps(self.steps)

    @property
    def is_final(self) -> bool:
        """Return whether the item has ended."""
        return self.state in FINAL


class CounterChange(models.Model):
    """A change of a counter; the value of the counter is the sum of its rows.

    Rows are inserted in the same transaction as the counted move and never updated, so routers do
    not wait for each other's row locks. ``services.fold_counter_changes`` merges them.
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
    # A value of ``ItemState`` or ``CountedEvent``.
    what = models.CharField(_("counter"), max_length=12, help_text=_("A state or an event."))
    amount = models.BigIntegerField(_("amount"))

    objects: ClassVar[models.Manager[CounterChange]] = models.Manager()

    class Meta:
        db_table = "routing_tally"
        verbose_name = _("counter change")
        verbose_name_plural = _("counter changes")

    def __str__(self) -> str:
        return f"{self.inbound} {self.outbound} {self.what} {self.amount:+d}"


class ValuePage(models.Model):
    """Search index of a group of items: fingerprints of their values (see engine/fingerprints.py).

    Written in the same transaction as the items. A search scans pages instead of items.
    ``services.merge_pages`` merges small pages.
    """

    project = models.ForeignKey(
        Project,
        verbose_name=_("project"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    at = models.DateTimeField(
        _("time"), help_text=_("When it was written, or last found to be in use.")
    )
    # Ids of items, eight bytes each, little-endian.
    items = models.BinaryField(_("tasks"))
    item_count = models.PositiveIntegerField(_("number of tasks"))
    fingerprints = models.BinaryField(_("fingerprints of values"))

    objects = ValuePageQuerySet.as_manager()

    class Meta:
        verbose_name = _("value page")
        verbose_name_plural = _("value pages")
        indexes = [models.Index(fields=["project", "id"], name="routing_page_of_project")]

    def __str__(self) -> str:
        return f"{self.item_count} items"


class RouterReport(models.Model):
    """Last status report of a router about the inbounds and outbounds of a project."""

    # Name and instance of the router process, as in ``runtime.models.Daemon``.
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
    at = models.DateTimeField(_("time"))
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
    """Last status report of a web process about a rule set's HTTP server."""

    # Host name and process id.
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
    at = models.DateTimeField(_("time"))

    objects: ClassVar[models.Manager[ServerReport]] = models.Manager()

    class Meta:
        verbose_name = _("server report")
        verbose_name_plural = _("server reports")
        constraints = [
            models.UniqueConstraint(fields=["process", "project"], name="routing_server_of_process")
        ]

    def __str__(self) -> str:
        return f"{self.process} {self.address}"
