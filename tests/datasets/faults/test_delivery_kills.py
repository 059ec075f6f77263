"""SIGKILL in every window of a delivery, while items are stored and moved into tables."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.datasets.faults.targets import REFUSED_EVERY, Place, Targets
from tests.datasets.faults.writer_processes import (
    FULL,
    PATIENCE_SECONDS,
    REJECTED_EVERY,
    WriterProcesses,
)
from tests.plugins.measurements import Measured
from tests.plugins.stores import lend_postgres_database, lend_rabbit_vhost

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900), pytest.mark.covers("DS.10")]

POINTS = ["datasets.before_delivery", "datasets.delivered", "datasets.delivery_moved"]
RETRY = ["datasets.retry_delivered", "datasets.retry_moved"]
EMBEDDED = ("table", "ended", "jsonl", "queue", "webhook", "mongodb")
SERVICES = ("postgresql", "ended", "parquet", "s3", "rabbitmq", "kafka", "webhook")
KINDS = [
    pytest.param(EMBEDDED, id="embedded"),
    pytest.param(SERVICES, id="services", marks=[pytest.mark.services, pytest.mark.kafka]),
]
_MAKE = """
import json
from apps.datasets.models import Dataset
from apps.datasets.services.deliveries import create_delivery
for dataset in Dataset.objects.order_by("id"):
    for name, fields in json.loads({fields!r}).items():
        create_delivery(dataset=dataset, name=name, actor=None, **fields)
print("made 1")
"""
_READ = """
import json
from django.db import connection, transaction
from apps.datasets.models import Delivery
from apps.datasets.queries.deliveries import accounting
found = []
# Of one moment: deliveries go on meanwhile.
with transaction.atomic():
    if connection.vendor == "postgresql":
        connection.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    for row in Delivery.objects.select_related("dataset"):
        counted = accounting(row).as_dict()
        found.append({"name": row.name, "error": row.error, "letters": row.dead_letters.count(),
                      "run": row.dataset.origin_id, "stored": counted.pop("stored"),
                      "parts": counted})
print("found " + json.dumps(found))
"""
_CALL = """
from apps.datasets.models import Delivery
from apps.datasets.services import deliveries
for row in Delivery.objects.filter(name__in={names!r}):
    deliveries.{call}(delivery=row, actor=None)
print("called 1")
"""


class Delivering:
    """Writers whose datasets are all delivered to some targets."""

    def __init__(
        self, writers: WriterProcesses, targets: Targets, places: dict[str, Place]
    ) -> None:
        self.writers = writers
        self.receiver = targets.receiver
        self.places = places
        fields = json.dumps({name: place.fields for name, place in places.items()})
        writers.shell(_MAKE.format(fields=fields), "made ")

    def read(self) -> list[dict[str, Any]]:
        """The accounting of each delivery, which is right at every moment."""
        found: list[dict[str, Any]] = self.writers.shell(_READ, "found ")
        for row in found:
            assert row["stored"] == sum(row["parts"].values()), row
            assert row["parts"]["failed"] == row["letters"], row
        return found

    def call(self, call: str, *names: str) -> None:
        """Have a service called for the deliveries of these names."""
        self.writers.shell(_CALL.format(call=call, names=list(names)), "called ")

    def until_delivered(self) -> list[dict[str, Any]]:
        """All are stored, none waits."""
        self.writers.until(lambda: self.writers.left() == 0)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.read()
            if not any(row["parts"]["waiting"] for row in found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.5)

    def check(self, found: list[dict[str, Any]], *, times: int = 1) -> dict[str, int]:
        """Each item has arrived at each target, ``times`` if it cannot replace itself there."""
        each = self.writers.each - self.writers.each // REJECTED_EVERY
        assert {row["stored"] for row in found} == {each}
        assert len(found) == len(self.places) * len(self.writers.tokens)
        failed = Counter[str]()
        for row in found:
            failed[row["name"]] += row["parts"].pop("failed")
            assert row["parts"].pop("delivered") + row["letters"] == each
            assert set(row["parts"].values()) == {0}, row
        wanted = {
            f"{run}-b1-{number}"
            for run in self.writers.tokens
            for number in range(1, self.writers.each + 1)
            if number % REJECTED_EVERY
        }
        totals = Counter[str]()
        for name, place in self.places.items():
            ids = place.read()
            arrived = wanted & set(ids)
            assert set(ids) <= wanted, name
            totals.update(of=len(wanted), lost=len(wanted) - len(arrived) - failed[name])
            if not place.repeats:
                assert len(ids) == len(arrived), f"{name}: some are there twice"
            else:
                # A kill repeats what one call or one chunk has.
                totals["repeated"] += len(ids) - times * len(arrived)
        assert not totals["lost"], totals
        return dict(totals)


def made(request: Any, folder: Path, names: tuple[str, ...], stack: ExitStack) -> Delivering:
    """Yield writers with some targets."""
    targets = Targets(request, folder, stack)
    environment = {"BROKER_URL": f"sqlite:///{folder / 'broker.sqlite3'}"}
    if names == SERVICES:
        environment = {
            "DATABASE_URL": stack.enter_context(lend_postgres_database()),
            "BROKER_URL": stack.enter_context(lend_rabbit_vhost()),
        }
    environment |= targets.environment
    writers = stack.enter_context(closing(WriterProcesses(folder / "writers", **environment)))
    return Delivering(writers, targets, {name: targets.make(name) for name in names})


@pytest.fixture(params=KINDS)
def delivering(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Delivering]:
    with ExitStack() as stack:
        found = made(request, tmp_path, request.param, stack)
        found.writers.send()
        yield found


def note(totals: dict[str, int]) -> dict[str, Any]:
    """What is measured: what came again where it cannot replace itself is no fault."""
    repeated = totals.pop("repeated", 0)
    return {**totals, "note": f"{repeated} repeated where a target cannot replace items"}


def test_each_item_arrives_wherever_a_delivery_dies(
    delivering: Delivering, measured: Measured
) -> None:
    writers = delivering.writers
    for hit in (1, 3, 7) if FULL else (2,):
        for point in POINTS:
            writers.until_killed(f"{point}=kill@{hit}")
            delivering.read()
    writers.start("one")
    writers.start("two")
    found = delivering.until_delivered()
    refused = [row for row in found if row["letters"]]
    assert {row["name"] for row in refused} == {"webhook"}
    numbers = range(REFUSED_EVERY, writers.each + 1, REFUSED_EVERY)
    wanted = sum(number % REJECTED_EVERY != 0 for number in numbers)
    assert {row["letters"] for row in refused} == {wanted}
    delivering.check(found)
    for name in ("one", "two"):
        writers.stop(name)
    # Dead letters, killed in each window of their retry.
    delivering.receiver.lenient = True
    delivering.call("retry_failures", "webhook")
    for point in RETRY:
        writers.until_killed(f"{point}=kill@1")
        delivering.read()
    writers.start("one")
    writers.until(lambda: not any(row["letters"] for row in delivering.read()))
    totals = delivering.check(delivering.until_delivered())
    # All of it again: what replaces itself is there once, the rest twice.
    delivering.call("deliver_again", *delivering.places)
    found = delivering.until_delivered()
    delivering.check(found, times=2)
    measured(**note(totals))


def test_one_of_two_is_frozen_with_items_in_hand(
    delivering: Delivering, measured: Measured
) -> None:
    writers = delivering.writers
    writers.start("frozen", "datasets.delivered=stop:12@2")
    writers.daemons.until_logged("frozen", "is running")
    writers.start("other")
    writers.daemons.until_frozen("frozen")
    totals = delivering.check(delivering.until_delivered())
    measured(**note(totals))
    for name in ("frozen", "other"):
        assert "Traceback" not in writers.daemons.log(name)
