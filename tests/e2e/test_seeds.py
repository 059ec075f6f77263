"""A frontier worked off by real runs, one of them killed: nothing lost, nothing finished twice."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.installation import Installation
from tests.e2e.lifecycle import FINAL
from tests.e2e.stored_items import items_of_run

pytestmark = [pytest.mark.timeout(600), pytest.mark.fault]

SEEDS = 60
# So slow that the first run is killed in the middle, however slow the machine is.
SPEED = 1.0


@pytest.fixture
def installation(stores: dict[str, str], tmp_path: Path) -> Iterator[Installation]:
    if stores:
        stores["SEEDS_URL"] = stores["DATABASE_URL"]
    with Installation(tmp_path, stores) as installation:
        installation.start_some("center", "runner", "statistics", "seeds", agents=2)
        yield installation


def pid_of(installation: Installation, run: int) -> int:
    code = f"from apps.jobs.models import Run; print(Run.objects.get(pk={run}).pid)"
    return int(installation.daemons.manage("shell", "-v0", "-c", code).stdout)


def items_of(installation: Installation, run: int) -> list[dict[str, Any]]:
    return items_of_run(installation.daemons, run)


@pytest.mark.covers("S3.1", "S3.15", "S3.16", "S3.17", "S3.20")
def test_a_frontier_is_worked_off_though_a_spider_is_killed(installation: Installation) -> None:
    rest = installation.rest
    project = rest.make("/projects", name="Sites", slug="sites", allowed_networks=["127.0.0.0/8"])
    frontier = rest.make("/frontiers", project=project["id"], name="pages", lease_seconds=6)["id"]
    rest.until(installation.agents_serve, "agents")
    with CountingSite(tree(SEEDS)) as site:
        seeds = [f"{site.url}{number}.html" for number in range(SEEDS)]
        added = rest.call("POST", f"/frontiers/{frontier}/add", seeds)
        assert added["new"] == SEEDS, added
        job = rest.make(
            "/jobs",
            project=project["id"],
            name="work",
            spider="seed_spiders:Follows",
            frontier=frontier,
            speed=SPEED,
        )["id"]

        def books() -> dict[str, int]:
            totals: dict[str, int] = rest.get(f"/frontiers/{frontier}/stats", live="true")["totals"]
            return totals

        def ended(run: int) -> dict[str, Any] | None:
            row: dict[str, Any] = rest.get(f"/runs/{run}")
            return row if row["state"] in FINAL else None

        first = rest.call("POST", f"/jobs/{job}/start", {}, status=201)["id"]
        rest.until(lambda: rest.get(f"/runs/{first}")["state"] == "running", "the first run")
        process = pid_of(installation, first)
        rest.until(lambda: books()["succeeded"] >= 6, "the first seeds")
        os.kill(process, signal.SIGKILL)
        row = rest.until(lambda: ended(first), "the end of the killed run")
        assert row["state"] in ("failed", "lost"), row
        # What it had out is leased until the lease runs out.
        killed = books()
        assert killed["succeeded"] < 2 * SEEDS, killed

        second = rest.call("POST", f"/jobs/{job}/start", {}, status=201)["id"]
        rest.until(lambda: rest.get(f"/runs/{second}")["state"] == "running", "the second run")
        rest.call("POST", f"/runs/{second}/tune", {"speed": 0, "concurrency": 20})
        row = rest.until(lambda: ended(second), "the end of the second run", 120)
        assert row["state"] == "exited", (row, installation.explain())

        # One note for each page, once, whoever found it first.
        after = books()
        assert after["added"] == after["succeeded"] == 2 * SEEDS, after
        assert after["pending"] == after["leased"] == after["failed"] == 0, after
        assert after["late"] == 0, after
        assert 0 < after["expired"] <= 40, after
        (tuned,) = rest.rows(f"/runs/{second}/commands")
        assert (tuned["accepted"], tuned["answer"]) == (True, "concurrency 20, speed 0")

        items = items_of(installation, first) + items_of(installation, second)
        seen = Counter(item["url"] for item in items)
        assert set(seen) == {page for seed in seeds for page in (seed, f"{seed}?more")}
        # Only what the killed one had out was fetched again.
        again = {item["seed"] for item in items if item["retry"]}
        assert {url.partition("?")[0] for url, count in seen.items() if count > 1} <= again
        assert len(again) <= after["expired"]
        content = json.loads(
            next(installation.daemons.folder.glob(f"**/runs/{second}/exit.json")).read_text()
        )
        told = content["seeds"]
        assert told["leased"] == told["succeeded"], told
        assert told["succeeded"] + killed["succeeded"] == 2 * SEEDS
    assert installation.tracebacks() == {}
