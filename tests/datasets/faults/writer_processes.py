"""Writers of datasets in processes of their own, to be broken, and what must be stored then."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_processes import Daemons
from yardkit import topology
from yardkit.broker import Broker, Outgoing, connect
from yardkit.items.batches import encode_line, pack
from yardkit.protocol import CHUNK_BYTES, FileChunk, ItemBatch, encode

FULL = os.environ.get("CRAWLYARD_FAULTS") == "full"
# More than is stored while writers are killed.
ITEMS = 60_000 if FULL else 12_000
RUNS = 4
# That of the settings in tests.datasets.peers.
PROJECT = 5
PER_BATCH = 20
# Each tenth item does not match the schema.
REJECTED_EVERY = 10
# Items that each run has given up before they were sent.
DROPPED = 5
FILE = b"f" * (CHUNK_BYTES + 1000)
# In the order in which a batch passes them.
POINTS = [
    "datasets.before_put",
    "datasets.after_put",
    "datasets.before_commit",
    "datasets.after_commit",
    "datasets.file_part",
    "datasets.before_ack",
]
COMPACTION = [
    "datasets.compaction_started",
    "datasets.compaction_written",
    "datasets.compaction_committed",
    "datasets.compaction_exchanged",
]
PATIENCE_SECONDS = 300.0 if FULL else 120.0

KINDS = [
    pytest.param("embedded", marks=pytest.mark.twin),
    pytest.param("services", marks=pytest.mark.services),
]

_MAKE_RUNS = """
import json
from django.conf import settings
from django.utils import timezone
from apps.datasets.models import Dataset
from apps.datasets.services.datasets import dataset_of_job
from apps.jobs.models import Job, Run
from apps.jobs.services import start_run
from apps.projects.models import Project
from apps.queuestats.models import RunCounter
from yardkit.tokens import sign_run_token
project = Project.objects.create(pk={project}, name="shop", slug="shop")
tokens = {{}}
for number in range({count}):
    job = Job.objects.create(project=project, name=f"job {{number}}", spider="a:B")
    dataset_of_job(job)
    run = start_run(job=job, now=timezone.now(), actor=None)
    tokens[run.pk] = sign_run_token(settings.SECRET_KEY, run.pk)
    RunCounter.objects.create(
        owner=run.stream, project=project, boot="b1", items={yielded}, updated_at=timezone.now(),
        dropped={{"larger than the limit": {dropped}}},
    )
Dataset.objects.update(item_schema={{"properties": {{"price": {{"type": "number"}}}}}})
# Ended ones are moved into tables at once.
Run.objects.update(state="exited", ended_at=timezone.now())
print("made " + json.dumps(tokens))
"""
_READ = """
import json
from apps.datasets.engine.reader import ItemQuery
from apps.datasets.models import DataFile, Dataset, StoredFile
from apps.datasets.queries.items import open_reader, run_accounting
from apps.datasets.services.files import content
from apps.jobs.models import Run
found = {{}}
for run in Run.objects.all():
    dataset = Dataset.objects.get(origin_id=run.job_id)
    rows, after = [], ""
    with open_reader(dataset, [run.pk]) as reader:
        while True:
            page = reader.page(ItemQuery(limit=1000, after=after))
            rows += [(item.seq, item.data["n"]) for item in page.items]
            after = page.next
            if not after:
                break
    levels = DataFile.objects.filter(dataset=dataset).values_list("level", flat=True)
    found[run.pk] = {{
        "rows": rows,
        "accounting": run_accounting(run.pk).as_dict(),
        "levels": sorted(set(levels)),
        "items": dataset.items,
        "table": f"p{{dataset.project_id}}.d{{dataset.pk}}",
        "files": [
            len(b"".join(content(row)))
            for row in StoredFile.objects.filter(run_number=run.pk).exclude(complete_at=None)
        ],
    }}
print("found " + json.dumps(found))
"""


_OPEN = """
from apps.datasets.models import Compaction, DataFile
from apps.datasets.states import CompactionState, Level
segments = DataFile.objects.filter(level=Level.SEGMENT).count()
started = Compaction.objects.filter(state=CompactionState.STARTED).count()
print(f"open {segments + started}")
"""


class WriterProcesses:
    """A broker with the items of some runs in it; each sends ``each`` of them."""

    def __init__(self, folder: Path, items: int = ITEMS, **environment: str) -> None:
        self.each = items // RUNS
        self.daemons = Daemons(folder, **environment)
        self.daemons.migrate()
        self.broker: Broker = connect(self.daemons.environment["BROKER_URL"], name="test")
        self.broker.declare(*topology.SHARED)
        script = _MAKE_RUNS.format(
            count=RUNS, yielded=self.each + DROPPED, dropped=DROPPED, project=PROJECT
        )
        self.tokens: dict[str, str] = self.shell(script, "made ")

    def close(self) -> None:
        """Leave nothing behind."""
        self.daemons.end()
        self.broker.close()

    def shell(self, script: str, word: str) -> Any:
        """Run a script inside the platform; what it prints after ``word``, as JSON."""
        lines = self.daemons.manage("shell", "-v0", "-c", script).stdout.splitlines()
        return json.loads(next(line for line in lines if line.startswith(word))[len(word) :])

    def send(self, first: int = 1, last: int | None = None) -> None:
        """What the runs send, all or from one number to another; some messages come twice."""
        for run, token in self.tokens.items():
            for number, body in enumerate(_messages(run, token, first, last or self.each)):
                twice = 2 if number % 7 == 0 else 1
                self.broker.publish([Outgoing(body=body, key=topology.ITEMS.name)] * twice).result(
                    60
                )

    def start(self, name: str, *failpoints: str) -> None:
        """A writer that breaks at these points."""
        self.daemons.start(
            name, "run_dataset_writer", "--name", name, FAILPOINTS=",".join(failpoints)
        )

    def until_killed(self, failpoint: str) -> None:
        """A writer that kills itself there."""
        self.start("killed", failpoint)
        process = self.daemons.processes["killed"]
        assert process.wait(PATIENCE_SECONDS) == -9, self.daemons.log("killed")

    def until_settled(self) -> None:
        """The queue is empty; then the writers end, and nothing goes back to it."""
        self.until(lambda: self.left() == 0)
        for name in [name for name in self.daemons.processes if name != "killed"]:
            self.stop(name)
        assert self.left() == 0

    def stop(self, name: str) -> None:
        """End a writer by a signal; before it runs a signal would just kill it."""
        self.daemons.until_logged(name, "is running")
        assert self.daemons.stop(name, signal.SIGTERM)[0] == 0, self.daemons.log(name)

    def are_compacted(self) -> bool:
        """Whether all items are in tables."""
        return self.shell(_OPEN, "open ") == 0

    def left(self) -> int:
        """Messages in the queue, or in the hands of a writer."""
        depth = self.broker.depth(topology.ITEMS.name)
        return depth.ready + max(depth.unacked, 0)

    def until(self, happened: Callable[[], bool]) -> None:
        """Wait for it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not happened():
            for name, process in self.daemons.processes.items():
                assert name == "killed" or process.poll() is None, self.daemons.log(name)
            assert time.monotonic() < deadline, {
                name: self.daemons.log(name)[-2000:] for name in self.daemons.processes
            }
            time.sleep(0.05)

    def read(self) -> dict[str, Any]:
        """What is stored of each run."""
        found: dict[str, Any] = self.shell(_READ.format(), "found ")
        return found

    def check_accounts(self) -> dict[str, int]:
        """Each item is stored once or rejected, and none was refused.

        Of how many items it is, how many are not there, and how many once too often.
        """
        totals = Counter[str]()
        expected = {n for n in range(1, self.each + 1) if n % REJECTED_EVERY}
        rejected = self.each - len(expected)
        for found in self.read().values():
            there = Counter(seq for seq, _number in found["rows"])
            totals += Counter(
                of=len(expected), lost=len(expected - set(there)), twice=there.total() - len(there)
            )
            assert sorted(there) == sorted(expected)
            assert all(seq == number for seq, number in found["rows"])
            assert found["items"] == len(expected)
            assert found["files"] == [len(FILE)]
            assert found["accounting"] == {
                "yielded": self.each + DROPPED,
                "stored": len(expected),
                "rejected": rejected,
                "dropped": DROPPED,
                "in_flight": 0,
                "flagged": 0,
                "deleted": 0,
                "reasons": {"price: type": rejected, "larger than the limit": DROPPED},
            }
        assert self.broker.depth("dead").ready == 0
        return {name: totals[name] for name in ("of", "lost", "twice")}


def _messages(run: str, token: str, begin: int, end: int) -> Iterator[bytes]:
    sender = {"producer": f"run:{run}", "boot": "b1", "at": time.time(), "token": token}
    for first in range(begin, end + 1, PER_BATCH):
        numbers = range(first, min(first + PER_BATCH, end + 1))
        lines = [encode_line(f"https://shop.example/{n}", _item(n)) for n in numbers]
        packed, size = pack(lines)
        yield encode(
            ItemBatch(**sender, first=first, count=len(lines), lines=packed, raw_bytes=size)
        )
        if first == 1:
            yield from (encode(chunk) for chunk in _chunks(sender))


def _item(number: int) -> dict[str, Any]:
    price = "none" if number % REJECTED_EVERY == 0 else number / 4
    return {"n": number, "price": price, "tags": ["a", number]}


def _chunks(sender: dict[str, Any]) -> Iterator[FileChunk]:
    parts = -(-len(FILE) // CHUNK_BYTES)
    for part in range(parts):
        yield FileChunk(
            **sender,
            name="image.png",
            content_type="image/png",
            part=part,
            parts=parts,
            size=len(FILE),
            sha256=hashlib.sha256(FILE).hexdigest(),
            data=FILE[part * CHUNK_BYTES : (part + 1) * CHUNK_BYTES],
        )
