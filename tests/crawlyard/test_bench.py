"""manage.py bench: every bench runs, at sizes that prove nothing but that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from crawlyard.settings.paths import ROOT
from tests.e2e.daemon_processes import Daemons
from tests.plugins import markers
from tools.benches.command import BENCHES
from tools.charts import figures

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]
LONG = pytest.mark.long("the benches of routing, seeds and heartbeats")


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    """Run a bench on embedded stores; its JSON."""

    def run(*arguments: str, **stores: str) -> dict[str, Any]:
        daemons = Daemons(tmp_path, **stores)
        folder = {"CRAWLYARD_BENCH_DATA": str(tmp_path / "bench")}
        # Some migrate two databases and start ten processes: slow beside other work.
        done = daemons.manage("bench", *arguments, "--json", timeout=280, **folder)
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    return run


def test_heartbeats_of_living_agents_are_all_seen(bench: Any) -> None:
    result = bench("heartbeats", "--agents", "40", "--scale", "1", "--seconds", "2")
    ours = result["ours"]
    assert (ours["agents"], ours["heartbeats_per_second"], ours["wrongly_dead"]) == (40, 8, 0)
    assert ours["cores_used"] > 0
    assert result["limit_ratio"] == ours["cores_used"] / result["limit"]["cores"]
    assert len(result["growth"]["steps"]) == 1


@LONG
def test_dispatch_counts_every_request_and_what_it_cost(bench: Any) -> None:
    sizes = ("--sizes", "10")
    result = bench("dispatch", *sizes, "--rate", "1000", "--seconds", "3")
    cases = result["ours"]["cases"]
    assert [one["policy"] for one in cases] == ["random", "chained"]
    for case in cases:
        assert (case["runs"], case["agents"], case["requests"]) == (10, 10, 3000)
        assert case["all_cpu_us_per_request"] >= case["cpu_us_per_request"] > 0
        assert case["peak_rss_mb"] > 0
        assert case["center_ms"]["p99"] >= case["center_ms"]["p50"] >= case["inside_ms"]["p50"] > 0
    growth = {"runs": 1.0, "agents": 1.0}
    assert result["ours"]["growth"] == {"random": growth, "chained": growth}


@pytest.mark.covers("S2.20")
def test_routing_answers_as_its_peer_does(bench: Any) -> None:
    # It fails by itself when the two sides answer differently.
    result = bench("routing", "--items", "300", "--sizes", "3", "40", "--scale", "2")
    cases = result["ours"]["cases"]
    assert [(one["outbounds"], one["routed"]) for one in cases] == [(3, 270), (40, 270)]
    assert [one["outbounds"] for one in result["peer"]["cases"]] == [3, 40]
    assert result["ratio"] == result["peer"]["cases"][-1]["ratio"] > 1
    assert len(result["ours"]["one_selector"]) == 5
    assert [one["items"] for one in result["growth"]["steps"]] == [600]


@LONG
def test_download_tells_what_the_center_adds(bench: Any) -> None:
    result = bench("download", "--pages", "30", "--scale", "2", "--no-peer")
    ours = result["ours"]
    assert ours["pages"] == 60
    assert 0 < ours["inside_center_ms"]["p50"] < ours["center_ms"]["p50"]
    workers = {"center", "statistics", "logs", "datasets", "agent-1", "agent-2", "spider"}
    assert set(ours["cpu_us_per_page"]) == workers
    assert result["peer"] is None
    assert result["limit_ratio"] == round(ours["center_ms"]["p50"] / 10, 3)
    assert result["growth"] == {"steps": [ours], "cpu_ratio": 1.0, "rss_ratio": 1.0}


@LONG
@pytest.mark.covers("OB.1")
def test_a_web_is_crawled_by_all_sides_within_the_same_limits(bench: Any) -> None:
    # It fails by itself when a side does not fetch each page, or one that robots.txt forbids.
    result = bench("download", "--profile", "web", "--pages", "40", "--rounds", "1")
    sides = {name: result[name] for name in ("ours", "peer", "bare")}
    for side in sides.values():
        assert (side["pages"], side["slow_pages"], side["fetched_again"]) == (40, 2, 0)
        assert side["page_bytes"] > 90_000 > 3 * side["wire_bytes_per_page"]
        assert side["robots"] >= 40
    # The platform counts an address that robots.txt forbids as unanswered, too.
    assert [side["unanswered"] for side in sides.values()] == [4, 3, 3]
    ours = result["ours"]
    on_the_way = sum(ours["broker_bytes_by_queue"][name] for name in ("center", "agent", "run"))
    assert 0 < on_the_way <= result["limit"]["broker_bytes_per_page"] == 2048
    rates = [sides[side]["pages_per_second"] for side in ("ours", "peer")]
    assert result["ratio"] == round(rates[0] / rates[1], 2)
    costs = [sides[side]["cpu_us_per_page"] for side in ("bare", "ours")]
    assert result["bare_ratio"] == round(costs[0] / costs[1], 3)
    assert {"center", "objects", "agent-1", "agent-2", "spider"} < set(ours["cpu_us_by_process"])


def test_only_downloads_have_the_profile_of_the_web(tmp_path: Path) -> None:
    done = Daemons(tmp_path).manage("bench", "logs", "--profile", "web", status=2)
    assert "--profile web is for download" in done.stderr


@LONG
@pytest.mark.covers("SC.8")
def test_scrapy_crawls_the_same_pages_plain_and_on_the_platform(bench: Any) -> None:
    # It fails by itself when a side does not fetch each page once.
    result = bench("scrapy", "--pages", "20", "--scale", "2")
    assert len(result["rounds"]) == 3
    for each in result["rounds"]:
        assert {side: each[side]["pages"] for side in each} == {"plain": 40, "ours": 40}
    assert result["ours"]["cpu_us_per_page"] > 0
    assert result["limit"] == {"ratio": 1.0, "memory_ratio": 1.1}
    used = (1 / result["ratio"], result["memory_ratio"] / 1.1)
    assert result["limit_ratio"] == round(max(used), 3)
    assert [step["pages"] for step in result["growth"]["steps"]] == [40]


def test_seeds_are_counted(bench: Any) -> None:
    # It fails by itself when a seed is lost. The peer is installed for benches only.
    result = bench("seeds", "--seeds", "20000", "--scale", "1", "--no-peer")
    ours = result["ours"]
    assert (ours["seeds"], ours["new"], ours["lost"]) == (20_000, 8000, 0)
    assert result["peer"] is None
    assert 0 < ours["filter_bytes_per_seed"] < result["limit"]["filter_bytes_per_seed"]


@LONG
@pytest.mark.services
@pytest.mark.covers("S4.18")
def test_requests_all_end_in_each_store_beside_one_by_one(bench: Any) -> None:
    # It fails by itself when a request has not ended.
    stores = {"DATABASE_URL": markers.POSTGRES_URL, "REDIS_URL": markers.REDIS_URL}
    small = ("--engines", "configured", "--requests", "2000", "--scale", "1")
    result = bench("requests", *small, **stores)
    ours = {one["store"]: one for one in result["ours"]["stores"]}
    assert set(ours) == {"embedded", "postgresql_redis"}
    for one, naive in zip(ours.values(), result["peer"]["naive"], strict=True):
        assert (one["requests"], one["lost"], naive["requests"]) == (2000, 0, 20)
        rate = one["requests_per_second"]
        assert one["times_naive"] == round(rate / naive["requests_per_second"], 1)
        assert one["times_patent"] == round(rate / 116, 1)
    assert result["ratio"] == min(one["times_naive"] for one in ours.values())
    assert [one["requests"] for one in result["growth"]["steps"]] == [2000, 2000]


def test_requests_says_what_it_needs(tmp_path: Path) -> None:
    done = Daemons(tmp_path).manage(
        "bench", "requests", "--requests", "10", "--scale", "1", "--engines", "configured", status=1
    )
    assert "DATABASE_URL must be postgres" in done.stderr


@LONG
@pytest.mark.services
@pytest.mark.covers("S2.1")
def test_router_counts_every_item_beside_its_peer(bench: Any) -> None:
    # It fails by itself when an item is missing or the books do not balance.
    stores = {
        "DATABASE_URL": markers.POSTGRES_URL,
        "BROKER_URL": markers.BROKER_URL,
        "REDIS_URL": markers.REDIS_URL,
    }
    small = ("--engines", "configured", "--items", "5000", "--scale", "1")
    result = bench("router", *small, **stores)
    for side in (result["ours"], result["peer"]):
        assert side["items"] == 5000
        assert side["items_per_cpu_second"] > 0
        assert side["peak_rss_mb"] > 0
    theirs = result["peer"]["items_per_cpu_second"]
    assert result["ratio"] == round(result["ours"]["items_per_cpu_second"] / theirs, 2)
    assert [one["items"] for one in result["growth"]["steps"]] == [5000]


def test_router_says_what_it_needs(tmp_path: Path) -> None:
    done = Daemons(tmp_path).manage("bench", "router", "--items", "10", status=1)
    assert "DATABASE_URL must be postgres" in done.stderr


@LONG
def test_a_harvest_is_measured_against_the_time_of_its_requests(bench: Any) -> None:
    # It fails by itself when a record is lost or the API was asked too often.
    result = bench("harvest", "--records", "1500", "--scale", "2")
    ours = result["ours"]
    # The token, the total and fifteen batches.
    assert (ours["records"], ours["requests"], ours["ideal_seconds"]) == (1500, 17, 0.85)
    assert ours["seconds"] >= 0.8
    assert result["limit_ratio"] == pytest.approx(ours["seconds"] / 0.85, abs=0.01)
    assert [one["records"] for one in result["growth"]["steps"]] == [3000]
    assert ours["peak_rss_mb"] > 0


@LONG
def test_lists_are_asked_for_and_their_rows_stay(bench: Any) -> None:
    # It fails by itself when a list is not answered.
    small = ("--rows", "2000", "--scale", "1", "--calls", "1")
    first = bench("api", *small)
    assert first["rows"] == {"runs": 2000, "requests": 2000, "lines": 2000}
    assert {one["of"] for one in first["ours"]["answers"]} == {"runs", "requests", "lines"}
    assert first["ours"]["slowest_p95_ms"] == max(one["p95_ms"] for one in first["ours"]["answers"])
    assert first["limit"] == {"p95_ms": 300, "queries": 12}
    assert first["ours"]["most_queries"] <= 12
    (step,) = first["growth"]["steps"]
    assert min(step[f"{of}_cpu_ms"] for of in ("runs", "requests", "lines")) > 0
    assert first["growth"]["cpu_ratio"] == {"embedded": 1.0}
    again = bench("api", *small)
    assert again["rows"] == first["rows"]


@LONG
@pytest.mark.covers("DS.4", "DS.5", "DS.6")
def test_items_all_end_in_the_table_and_are_asked_for(bench: Any) -> None:
    # It fails by itself when an item is missing.
    result = bench("items", "--items", "600", "--no-peer")
    ours = result["ours"]
    assert (ours["items"], ours["files"]) == (600, 1)
    assert result["stored_share"] == round(ours["bytes"] / ours["json_bytes"], 3)
    assert result["items_per_second"] == ours["items_per_second"] > 0
    assert {"first_page", "equality_filter", "contains_rare", "sort"} < set(ours["query_ms"])
    assert set(ours["exports"]) == {"jsonl", "parquet"}
    assert result["export_ratio"] == min(one["ratio"] for one in ours["exports"].values())
    assert [step["items"] for step in result["growth"]["steps"]] == [60, 600]
    assert (result["ratio"], result["peer"]) == (None, None)


@LONG
@pytest.mark.services
@pytest.mark.covers("DS.4")
def test_items_on_servers_beside_copy(bench: Any) -> None:
    stores = {"DATABASE_URL": markers.POSTGRES_URL, "BROKER_URL": markers.BROKER_URL}
    result = bench("items", "--items", "1000", "--engines", "configured", **stores)
    assert (result["database"], result["broker"], result["objects"]) == ("postgresql", "amqp", "s3")
    rates = [result[side]["items_per_second"] for side in ("ours", "peer")]
    assert result["peer"]["items"] == 1000
    assert result["ratio"] == round(rates[0] / rates[1], 2)


def test_items_says_what_it_needs(tmp_path: Path) -> None:
    done = Daemons(tmp_path).manage("bench", "items", "--engines", "configured", status=1)
    assert "DATABASE_URL must be postgres" in done.stderr


def test_the_charts_show_every_bench() -> None:
    shown = figures()
    for chart in ("ratio", "growth"):
        assert {row["bench"] for row in shown[chart]} == set(BENCHES)


def test_lists_say_what_they_need(tmp_path: Path) -> None:
    done = Daemons(tmp_path).manage("bench", "api", "--engines", "configured", status=1)
    assert "DATABASE_URL must be postgres" in done.stderr


def test_an_installation_without_a_checkout_says_where_the_benches_are(tmp_path: Path) -> None:
    program = (
        "import sys; from crawlyard.management.commands.bench import Command;"
        "Command().run_from_argv(['manage.py', 'bench', 'download'])"
    )
    # As from a wheel: the packages without the checkout around them.
    installed = tmp_path / "site"
    installed.mkdir()
    for name in ("crawlyard", "yardkit"):
        (installed / name).symlink_to(ROOT / "platform" / name)
    path = os.pathsep.join([str(installed), sysconfig.get_path("purelib")])
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": path, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "from a checkout" in done.stderr
