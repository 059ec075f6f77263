"""run_collector as a process: kills, stops, several instances, broker outages."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg
import pytest

from tests.e2e.daemon_processes import Daemons
from tests.plugins.measurements import Measured
from tests.sources.collector_setup import take_all
from tests.sources.octoparse_double import PASSWORD, TASK, USER, OctoparseDouble
from tests.yardkit.broker_proxy import Proxy
from yardkit.broker import connect

pytestmark = [pytest.mark.timeout(300), pytest.mark.fault, pytest.mark.services]

FULL = os.environ.get("CRAWLYARD_FAULTS") == "full"
POINTS = (
    *("sources.after_plan", "sources.before_publish", "sources.after_publish"),
    "sources.after_checkpoint",
)
MAKE = f"""
from apps.projects.models import Project
from apps.sources.services import save_credential
project = Project.objects.create(name="news", slug="news")
save_credential(
    project_id=project.pk, name="vendor", actor=None,
    values={{"username": {USER!r}, "password": {PASSWORD!r}}},
)
"""


class Box:
    """Database, virtual host behind a proxy, and collector processes."""

    def __init__(self, daemons: Daemons, database: str, broker_url: str, proxy: Proxy) -> None:
        self.daemons = daemons
        self.proxy = proxy
        self._broker_url = broker_url
        self._database = psycopg.connect(database, autocommit=True)

    def configure(self, double: OctoparseDouble, names: list[str], **fields: Any) -> None:
        source = {
            "base_url": double.url,
            "task_id": TASK,
            "credentials": "vendor",
            "rate_limit": 20,
            "filter_days": 0,
            **fields,
        }
        file = self.daemons.folder / "sources.json"
        file.write_text(json.dumps({"sources": dict.fromkeys(names, source)}))
        self.daemons.manage("config", "apply", "sources", str(file), "--project", "news")

    def start(self, name: str, **environment: str) -> None:
        self.daemons.start(name, "run_collector", "--name", name, **environment)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._database.execute(query).fetchall()

    def until(self, true: Callable[[], bool], seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            logs = "\n".join(self.daemons.log(name) for name in self.daemons.processes)
            assert time.monotonic() < deadline, logs
            time.sleep(0.05)

    def until_back(self, begun: float) -> float | None:
        """Wait for one more batch; return the seconds since ``begun``, the end of the outage.

        None: all have been published already.
        """
        before, sources = self._batches(), self.completed()
        self.until(lambda: self._batches() > before or self.completed() > sources)
        return time.monotonic() - begun if self._batches() > before else None

    def restart(self, name: str) -> float | None:
        """Restart a killed collector; return the seconds until it has published a batch."""
        begun = time.monotonic()
        self.start(name)
        return self.until_back(begun)

    def _batches(self) -> int:
        ((count,),) = self.rows("SELECT coalesce(sum(batches), 0) FROM sources_harvest")
        return int(count)

    def check(
        self, sources: list[str], total: int, measured: Measured, back_s: float | None
    ) -> list[tuple[str, str, int]]:
        """Check that the queue has every record of these sources, report it, and return them."""
        found = self.messages()
        places = {(source, offset) for _id, source, offset in found}
        wanted = {(source, offset) for source in sources for offset in range(total)}
        twice = len(found) - len(places)
        measured(of=len(wanted), lost=len(wanted - places), twice=twice, back_s=back_s)
        assert places == wanted
        return found

    def completed(self) -> int:
        ((count,),) = self.rows("SELECT count(*) FROM sources_harvest WHERE state = 'completed'")
        return int(count)

    def messages(self) -> list[tuple[str, str, int]]:
        """Consume the queue; return (message id, source, offset) of each message."""
        broker = connect(self._broker_url, name="test", timeout=10.0)
        found = [
            (each.message_id, str(each.headers["source"]), int(each.headers["offset"]))
            for each in take_all(broker)
        ]
        broker.close()
        return found

    def close(self) -> None:
        self._database.close()


@pytest.fixture
def box(
    tmp_path: Path, postgres_database: str, new_rabbit_vhost: str, double: OctoparseDouble
) -> Iterator[Box]:
    parts = urlsplit(new_rabbit_vhost)
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(parts.hostname or "127.0.0.1", parts.port or 5672))
        login, at, _host = parts.netloc.rpartition("@")
        through = urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{proxy.port}"))
        daemons = Daemons(
            tmp_path,
            DATABASE_URL=postgres_database,
            BROKER_URL=through,
            SOURCES_ALLOWED_NETWORKS="127.0.0.0/8",
        )
        stack.callback(daemons.end)
        daemons.manage("shell", "-v0", "-c", MAKE)
        made = Box(daemons, postgres_database, new_rabbit_vhost, proxy)
        stack.callback(made.close)
        yield made


@pytest.mark.covers("S0.17", "S0.26", "S0.27")
def test_kills_at_any_line_lose_nothing(
    box: Box, double: OctoparseDouble, measured: Measured
) -> None:
    kills = 40 if FULL else 3
    double.total = 150 * kills + 250
    box.configure(double, ["news", "sport"])
    chance = random.Random(11)
    for number in range(kills):
        point = POINTS[number % 4] if number < 4 else chance.choice(POINTS)
        at = 1 if point == "sources.after_plan" else chance.randint(1, 3)
        # Active imports have their plan already.
        point = "sources.before_publish" if number and at == 1 else point
        box.start("collector", FAILPOINTS=f"{point}=kill@{at}")
        process = box.daemons.processes["collector"]
        box.until(lambda process=process: process.poll() is not None)  # type: ignore[misc]  # bound now
        assert process.returncode == -signal.SIGKILL, box.daemons.log("collector")
    back_s = box.restart("collector")
    box.until(lambda: box.completed() == 2)
    found = box.check(["news", "sport"], double.total, measured, back_s)
    places = {(source, offset) for _id, source, offset in found}
    # Duplicates have the same id: at most one batch per source and kill.
    assert len({each for each, _source, _offset in found}) == len(places)
    assert len(found) - len(places) <= kills * 200
    books = box.rows("SELECT sum(read), sum(published) FROM sources_harvest")
    assert books == [(2 * double.total, 2 * double.total)]


@pytest.mark.long("killed there, and a lease that has run out is tried in one process")
@pytest.mark.parametrize("point", POINTS)
def test_one_of_two_collectors_stands_still_beyond_its_lease(
    box: Box, double: OctoparseDouble, measured: Measured, point: str
) -> None:
    double.total = 3000
    box.configure(double, ["news"])
    at = 1 if point == "sources.after_plan" else 3
    # Leases last 15 s.
    box.start("frozen", FAILPOINTS=f"{point}=stop:20@{at}")
    process = box.daemons.processes["frozen"]
    box.until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    begun = time.monotonic()
    box.start("other")
    back_s = box.until_back(begun)
    box.until(lambda: psutil.Process(process.pid).status() != psutil.STATUS_STOPPED)
    box.until(lambda: box.completed() == 1)
    for name in ("frozen", "other"):
        assert box.daemons.stop(name, signal.SIGTERM)[0] == 0, box.daemons.log(name)
    found = box.check(["news"], double.total, measured, back_s)
    # Resumed, it sends at most its current batch, with the same ids.
    assert len({each for each, _source, _offset in found}) == double.total
    assert len(found) - double.total <= 100
    assert box.rows("SELECT sum(read), sum(published) FROM sources_harvest") == [(3000, 3000)]
    ended = box.rows("SELECT state, collector FROM sources_harvest ORDER BY id")
    assert ended == [("interrupted", "frozen"), ("completed", "other")]


@pytest.mark.covers("S0.26", "S0.27")
def test_two_collectors_share_the_sources_and_one_takes_over(
    box: Box, double: OctoparseDouble
) -> None:
    names = [f"source-{number}" for number in range(6)]
    double.total = 1500
    box.configure(double, names, rate_limit=10)
    box.start("one")
    box.start("two")
    # Sources of one account share its rate limit in turns.
    box.until(
        lambda: (
            box.rows("SELECT count(*) FROM sources_harvest WHERE batches > 0 AND ended_at IS NULL")
            == [(6,)]
        )
    )
    status, seconds = box.daemons.stop("one", signal.SIGTERM)
    assert (status, seconds < 5.0) == (0, True)
    interrupted = box.rows("SELECT reason FROM sources_harvest WHERE state = 'interrupted'")
    assert set(interrupted) <= {("shutdown",)}
    box.until(lambda: box.completed() == 6)
    found = box.messages()
    # The hand-over was between batches: no duplicates.
    assert Counter(source for _id, source, _offset in found) == dict.fromkeys(names, 1500)
    assert len({each for each, _source, _offset in found}) == 9000
    shared = box.rows("SELECT DISTINCT collector FROM sources_harvest")
    assert {("two",)} <= set(shared)


def test_a_broker_that_goes_away_is_waited_for(
    box: Box, double: OctoparseDouble, measured: Measured
) -> None:
    double.total = 2000
    box.configure(double, ["news"])
    box.start("collector")
    box.until(lambda: box.rows("SELECT batches >= 3 FROM sources_harvest") == [(True,)])
    box.proxy.shut()
    waiting = "SELECT waiting_for LIKE 'broker: %' FROM sources_sourcestate"
    box.until(lambda: box.rows(waiting) == [(True,)])
    ((batches,),) = box.rows("SELECT batches FROM sources_harvest")
    box.proxy.open()
    back_s = box.until_back(time.monotonic())
    box.until(lambda: box.completed() == 1)
    assert batches < 20
    found = box.check(["news"], 2000, measured, back_s)
    assert len({each for each, _source, _offset in found}) == 2000
    assert box.rows("SELECT read, published FROM sources_harvest") == [(2000, 2000)]
    assert box.rows(waiting) == [(False,)]
