"""Datasets, the manifest of their files, and the accounting of their items.

The items themselves are in the object store.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.datasets.querysets import DatasetQuerySet, DeliveryQuerySet, OfDatasetQuerySet
from apps.datasets.states import CompactionState, DeliveryMode, DeliveryState, Kind, Level, Origin
from apps.projects.models import Project
from apps.runtime.fields import SecretTextField

NAME_CHARACTERS = 200


class Dataset(models.Model):
    """Items of one job, request group or source, over all runs.

    ``name`` is unique in the project and kind, and stands in addresses. The row is locked by every
    writer of its manifest, so ``last_batch`` numbers commits in order.
    """

    project = models.ForeignKey(
        Project, verbose_name=_("project"), on_delete=models.CASCADE, related_name="+"
    )
    name = models.CharField(_("name"), max_length=NAME_CHARACTERS)
    kind = models.CharField(
        _("kind"),
        max_length=8,
        choices=Kind.choices,
        default=Kind.ITEMS,
        db_default=Kind.ITEMS.value,
    )
    origin = models.CharField(_("origin"), max_length=6, choices=Origin.choices)
    # Of a job its ID; a request group or a source has no row and is known by its name. The name of
    # a job's datasets of requests and pages is their kind.
    origin_id = models.BigIntegerField(_("origin ID"), default=0)
    origin_name = models.CharField(_("origin"), max_length=NAME_CHARACTERS, blank=True, default="")
    created_at = models.DateTimeField(_("created at"), default=timezone.now)
    # Columns in order: [{"field": "price", "column": "price", "type": "double"}, ...].
    columns = models.JSONField(_("columns"), default=list)
    last_batch = models.BigIntegerField(_("last batch"), default=0)
    # Sums over the manifest.
    items = models.BigIntegerField(_("items"), default=0)
    bytes = models.BigIntegerField(_("bytes"), default=0)
    raw_bytes = models.BigIntegerField(_("bytes as JSON"), default=0)
    # Settings by people.
    key_fields = models.JSONField(
        _("key"),
        default=list,
        blank=True,
        help_text=_("Fields that identify an item over all runs, such as url or sku."),
    )
    item_schema = models.JSONField(
        _("schema"), default=dict, blank=True, help_text=_("JSON Schema that items must match.")
    )
    # Rules of checks, see engine/checks.py.
    checks = models.JSONField(_("checks"), default=list, blank=True)
    keep_days = models.PositiveIntegerField(
        _("days"), null=True, blank=True, help_text=_("Older runs are deleted.")
    )
    keep_runs = models.PositiveIntegerField(
        _("runs"), null=True, blank=True, help_text=_("Beyond it the oldest runs are deleted.")
    )
    keep_bytes = models.BigIntegerField(
        _("size limit"),
        null=True,
        blank=True,
        help_text=_("Beyond it the oldest runs are deleted."),
    )
    # Lease of compaction and retention.
    owner = models.CharField(max_length=200, blank=True)
    leased_until = models.DateTimeField(default=timezone.now)
    generation = models.BigIntegerField(default=0)

    objects = DatasetQuerySet["Dataset"].as_manager()

    class Meta:
        verbose_name = _("dataset")
        verbose_name_plural = _("datasets")
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "kind", "name"], name="datasets_name_once"),
            models.UniqueConstraint(
                fields=["project", "origin", "origin_id", "origin_name"],
                name="datasets_origin_once",
            ),
            models.CheckConstraint(
                condition=Q(origin__in=Origin.values), name="datasets_origin_known"
            ),
            models.CheckConstraint(condition=Q(kind__in=Kind.values), name="datasets_kind_known"),
        ]

    def __str__(self) -> str:
        return self.name

    def limit(self, name: str) -> int | None:
        """Return a limit of the retention: the dataset's own, else the project's."""
        own: int | None = getattr(self, name)
        return getattr(self.project, name) if own is None else own


class DatasetRun(models.Model):
    """Accounting and statistics of one run in its dataset.

    ``run_number`` is the run's ID; 0 stands for a producer without runs. yielded = stored +
    rejected + dropped + in flight, where the first and the third are reported by the run.
    ``fields``: by field ``{"count": 5, "types": {"string": 5}, "min": .., "max": .., "sum": ..}``.
    """

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="runs")
    run_number = models.BigIntegerField(_("run"))
    stored = models.BigIntegerField(_("stored"), default=0)
    rejected = models.BigIntegerField(_("rejected"), default=0)
    flagged = models.BigIntegerField(_("flagged"), default=0)
    duplicates = models.BigIntegerField(_("duplicates"), default=0)
    # Reasons of rejections: {"price: is not a number": 3}; the rarest are merged into "other".
    reasons = models.JSONField(_("reasons"), default=dict)
    bytes = models.BigIntegerField(_("bytes"), default=0)
    raw_bytes = models.BigIntegerField(_("bytes as JSON"), default=0)
    fields = models.JSONField(_("fields"), default=dict)
    first_at = models.DateTimeField(_("first item"), null=True)
    last_at = models.DateTimeField(_("last item"), null=True)
    # When all items of the ended run were in the table, and a number that grows with each run that
    # gets there, by which deliveries at the end of runs remember where they are.
    settled_at = models.DateTimeField(_("settled at"), null=True)
    settled_batch = models.BigIntegerField(null=True)
    # Comparison with the previous run by key: added, removed, changed, equal; empty without a key.
    compared = models.JSONField(_("compared"), default=dict)
    # Outcome of the checks: [{"check": .., "ok": false, "text": ..}].
    checked = models.JSONField(_("checked"), default=list)
    pinned = models.BooleanField(_("pinned"), default=False)
    deleted_at = models.DateTimeField(_("deleted at"), null=True)
    deleted_items = models.BigIntegerField(_("deleted items"), default=0)

    objects = OfDatasetQuerySet["DatasetRun"].as_manager()

    class Meta:
        verbose_name = _("data of a run")
        verbose_name_plural = _("data of runs")
        ordering: ClassVar = ["-run_number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["dataset", "run_number"], name="datasets_run_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["run_number"], name="datasets_run_number"),
            models.Index(fields=["settled_at"], name="datasets_run_settled"),
        ]

    def __str__(self) -> str:
        return f"{self.dataset_id}/{self.run_number}"


class ItemStream(models.Model):
    """Numbers of items that were received from one execution of a producer, as ranges."""

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="streams")
    producer = models.CharField(max_length=100)
    boot = models.CharField(max_length=64)
    # ``Spans.to_bytes``.
    spans = models.BinaryField(default=bytes)
    last_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        verbose_name = _("stream of items")
        verbose_name_plural = _("streams of items")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["producer", "boot"], name="datasets_stream_once")
        ]

    def __str__(self) -> str:
        return f"{self.producer}/{self.boot}"


class Compaction(models.Model):
    """Moves data files of one run into the Iceberg table, or merges files of the table.

    Its ID stands in the summary of the snapshot (``crawlyard.compaction``): after a crash it is
    looked up there.
    """

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="compactions")
    run_number = models.BigIntegerField()
    state = models.CharField(
        max_length=9, choices=CompactionState.choices, default=CompactionState.STARTED
    )
    # IDs and paths of the data files that it replaces.
    inputs = models.JSONField(default=list)
    # Files of the table that it has written, as rows of DataFile.
    outputs = models.JSONField(default=list)
    # Whether the inputs are files of the table: they leave it with the same commit.
    is_merge = models.BooleanField(default=False)
    started_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("compaction")
        verbose_name_plural = _("compactions")
        indexes: ClassVar = [
            models.Index(
                fields=["dataset"], condition=Q(state="started"), name="datasets_compaction_open"
            )
        ]

    def __str__(self) -> str:
        return f"{self.dataset_id}/{self.pk}"


class DataFile(models.Model):
    """One Parquet file of the manifest, a segment or a file of the Iceberg table.

    ``path`` is the object's key below ``OBJECTS_URL``. Rows have the system columns of
    engine/columns.py; a file holds items of one run only, ordered by (batch, position).
    """

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="files")
    run_number = models.BigIntegerField()
    level = models.SmallIntegerField(choices=Level.choices, default=Level.SEGMENT)
    path = models.CharField(max_length=500, unique=True)
    items = models.BigIntegerField()
    bytes = models.BigIntegerField()
    raw_bytes = models.BigIntegerField()
    first_batch = models.BigIntegerField()
    last_batch = models.BigIntegerField()
    # Of a table file, whose items are all of one day; a segment may have several.
    day = models.DateField(null=True)
    created_at = models.DateTimeField(default=timezone.now)

    objects = OfDatasetQuerySet["DataFile"].as_manager()

    class Meta:
        verbose_name = _("data file")
        verbose_name_plural = _("data files")
        indexes: ClassVar = [
            models.Index(fields=["dataset", "run_number", "level"], name="datasets_file_of_run"),
            models.Index(fields=["dataset", "last_batch"], name="datasets_file_batch"),
            models.Index(fields=["level", "created_at"], name="datasets_file_segments"),
        ]

    def __str__(self) -> str:
        return self.path


class Delivery(models.Model):
    """Copies a dataset's items to a target of somebody else.

    ``position`` is the number of the last batch that is delivered, completely if ``offset`` is 0,
    otherwise as many items of it. stored = delivered + waiting + failed + missed + skipped.
    """

    dataset = models.ForeignKey(
        Dataset, verbose_name=_("dataset"), on_delete=models.CASCADE, related_name="deliveries"
    )
    name = models.CharField(_("name"), max_length=100)
    kind = models.CharField(_("target"), max_length=20)
    url = models.CharField(_("address"), max_length=1000, blank=True)
    # What the address needs: user, password, key, as JSON.
    credentials = SecretTextField(_("credentials"))
    options = models.JSONField(_("options"), default=dict, blank=True)
    mode = models.CharField(
        _("when"), max_length=10, choices=DeliveryMode.choices, default=DeliveryMode.CONTINUOUS
    )
    state = models.CharField(
        _("state"), max_length=8, choices=DeliveryState.choices, default=DeliveryState.ACTIVE
    )
    position = models.BigIntegerField(default=0)
    offset = models.BigIntegerField(default=0)
    delivered = models.BigIntegerField(_("delivered"), default=0)
    failed = models.BigIntegerField(_("failed"), default=0)
    # Items that were there before the delivery began, and are not to be delivered.
    skipped = models.BigIntegerField(_("skipped"), default=0)
    # Items that were stored, and deleted by retention, before they were delivered.
    missed = models.BigIntegerField(_("missed"), default=0)
    # Dead letters up to this ID are to be delivered again.
    retry_to = models.BigIntegerField(default=0)
    # Consecutive failures.
    failures = models.PositiveIntegerField(default=0)
    error = models.CharField(_("error"), max_length=500, blank=True)
    # Since when something waits; None: all is delivered.
    behind_since = models.DateTimeField(_("behind since"), null=True)
    delivered_at = models.DateTimeField(_("delivered at"), null=True)
    next_try_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(default=timezone.now)
    owner = models.CharField(max_length=200, blank=True)
    leased_until = models.DateTimeField(default=timezone.now)
    generation = models.BigIntegerField(default=0)

    objects = DeliveryQuerySet["Delivery"].as_manager()

    class Meta:
        verbose_name = _("delivery")
        verbose_name_plural = _("deliveries")
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["dataset", "name"], name="datasets_delivery_once")
        ]

    def __str__(self) -> str:
        return self.name


class DeliveryFailure(models.Model):
    """An item that a target has refused for good: the dead letters of a delivery."""

    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="dead_letters")
    run_number = models.BigIntegerField(_("run"))
    boot = models.CharField(max_length=64)
    seq = models.BigIntegerField(_("number"))
    # Place in the order of the delivery.
    batch = models.BigIntegerField(default=0)
    url = models.TextField(_("page"), blank=True, default="")
    stored_at = models.DateTimeField(default=timezone.now)
    item = models.TextField(_("item"))
    reason = models.CharField(_("reason"), max_length=500)
    at = models.DateTimeField(_("at"), default=timezone.now)

    class Meta:
        verbose_name = _("undelivered item")
        verbose_name_plural = _("undelivered items")
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["delivery", "run_number", "boot", "seq"], name="datasets_failure_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.run_number}/{self.seq}: {self.reason}"


class StoredFile(models.Model):
    """A file that a run keeps, in parts below ``path``: ``<path>/0``, ``<path>/1``, ..."""

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="stored_files")
    run_number = models.BigIntegerField(_("run"))
    name = models.CharField(_("name"), max_length=500)
    content_type = models.CharField(_("type"), max_length=100, blank=True)
    size = models.BigIntegerField(_("size"))
    sha256 = models.CharField(max_length=64)
    path = models.CharField(max_length=500)
    parts = models.PositiveIntegerField()
    # Numbers of the parts that have arrived; the file is complete when all have.
    arrived = models.JSONField(default=list)
    complete_at = models.DateTimeField(_("stored at"), null=True)

    objects = OfDatasetQuerySet["StoredFile"].as_manager()

    class Meta:
        verbose_name = _("file")
        verbose_name_plural = _("files")
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["dataset", "run_number", "name", "sha256"], name="datasets_file_once"
            )
        ]

    def __str__(self) -> str:
        return self.name


class IcebergTable(models.Model):
    """Catalog of Iceberg tables, as pyiceberg's SQL catalog reads and writes it."""

    pk = models.CompositePrimaryKey("catalog_name", "table_namespace", "table_name")
    catalog_name = models.CharField(max_length=255)
    table_namespace = models.CharField(max_length=255)
    table_name = models.CharField(max_length=255)
    metadata_location = models.CharField(max_length=1000, null=True)  # noqa: DJ001 - its schema
    previous_metadata_location = models.CharField(  # noqa: DJ001 - its schema
        max_length=1000, null=True
    )
    iceberg_type = models.CharField(max_length=5, null=True)  # noqa: DJ001 - its schema

    class Meta:
        db_table = "iceberg_tables"

    def __str__(self) -> str:
        return f"{self.table_namespace}.{self.table_name}"


class IcebergNamespaceProperty(models.Model):
    """Namespaces of the catalog, one a project."""

    pk = models.CompositePrimaryKey("catalog_name", "namespace", "property_key")
    catalog_name = models.CharField(max_length=255)
    namespace = models.CharField(max_length=255)
    property_key = models.CharField(max_length=255)
    property_value = models.CharField(max_length=1000)

    class Meta:
        db_table = "iceberg_namespace_properties"

    def __str__(self) -> str:
        return f"{self.namespace}: {self.property_key}"
