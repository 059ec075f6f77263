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
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    task_uuid = models.UUIDField(_("task UUID"), editable=False)
    # Digest of the inbound and its message; null for what can be told from nothing else.
    identity = models.UUIDField(null=True, blank=True, editable=False)
    inbound = models.CharField(_("inbound"), max_length=NAME_CHARACTERS)
    outbound = models.CharField(_("outbound"), max_length=NAME_CHARACTERS, blank=True)
    state = models.CharField(_("state"), max_length=10, choices=ItemState.choices)
    generation = models.PositiveIntegerField(default=1)
    # How often somebody has begun with it since it last got anywhere.
    attempts = models.PositiveIntegerField(_("attempts"), default=1)
    due_at = models.DateTimeField(_("due at"), null=True, blank=True)
    received_at = models.DateTimeField(_("received at"))
    changed_at = models.DateTimeField(_("changed at"))
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)
    routed_count = models.PositiveIntegerField(_("times routed"), default=0)
    retry_times = models.PositiveIntegerField(_("retries"), default=0)
    group_retry_times = models.PositiveIntegerField(_("retries of the group"), default=0)
    # The version of the rules that it was last routed by; 0 is none.
    rules_version = models.PositiveBigIntegerField(_("rules version"), default=0)
    reason = models.CharField(_("reason"), max_length=40, blank=True)
    detail = models.CharField(_("detail"), max_length=500, blank=True)
    # The JSON as it is: no database has to understand it, and 1.0 stays 1.0.
    item = models.TextField(_("item"))
    # See engine/steps.py; appended to without being read.
    steps = models.TextField(_("steps"), blank=True)
    step_count = models.PositiveIntegerField(default=0)
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
                fields=["due_at"], name="routing_item_due", condition=Q(due_at__isnull=False)
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
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    inbound = models.CharField(max_length=NAME_CHARACTERS)
    outbound = models.CharField(max_length=NAME_CHARACTERS, blank=True)
    # A state, or one of the words of ``Counted``.
    what = models.CharField(max_length=12)
    amount = models.BigIntegerField()

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
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    # When it was written, or last seen to be of use.
    at = models.DateTimeField()
    # Ids of the items, eight bytes each, little-endian.
    items = models.BinaryField()
    item_count = models.PositiveIntegerField()
    fingerprints = models.BinaryField()

    objects = ValuePageQuerySet.as_manager()

    class Meta:
        verbose_name = _("value page")
        verbose_name_plural = _("value pages")
        indexes = [models.Index(fields=["project", "id"], name="routing_page_of_project")]

    def __str__(self) -> str:
        return f"{self.item_count} items"
