"""States of datasets and of what belongs to them."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Origin(models.TextChoices):
    """What writes into a dataset."""

    JOB = "job", _("Job")
    BIZ = "biz", _("Request group")
    SOURCE = "source", _("Source")


class Kind(models.TextChoices):
    """What the rows of a dataset are.

    People see datasets of items. Requests and kept pages belong to the runs of a job: each has a
    dataset beside that of the job's items, which no list shows.
    """

    ITEMS = "items", _("Items")
    REQUESTS = "requests", _("Requests")
    PAGES = "pages", _("Pages")


class Level(models.IntegerChoices):
    """Place of a data file: a segment is fresh, a table file belongs to the Iceberg table."""

    SEGMENT = 0, _("segment")
    TABLE = 1, _("table file")


class CompactionState(models.TextChoices):
    """A compaction writes files, commits them to the table, then exchanges the manifest's rows."""

    STARTED = "started", _("started")
    DONE = "done", _("done")
    ABANDONED = "abandoned", _("abandoned")


class DeliveryState(models.TextChoices):
    """Whether a delivery works."""

    ACTIVE = "active", _("Active")
    PAUSED = "paused", _("Paused")
    FAILING = "failing", _("Failing")


class DeliveryMode(models.TextChoices):
    """When items are delivered."""

    CONTINUOUS = "continuous", _("Continuously")
    AT_END = "at_end", _("When a run has ended")
