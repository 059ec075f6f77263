"""Center and agent at each failpoint: killed, frozen, or met by an exception; the run goes on.

On the embedded stores, with one process of each kind.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from tests.e2e.accounting import check_books, check_complete, figures, reference
from tests.e2e.cluster import Cluster
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.daemon_processes import ROOT
from tests.plugins.measurements import Measured

pytestmark = [pytest.mark.fault, pytest.mark.timeout(150)]

WINDOW = 10
# At which hit: late enough for the run to be under way, where that can be.
POINTS = {
    "center.registered": 1,
    "center.allocated": 1,
    "center.before_dispatch": 3,
    "center.before_release": 1,
    "agent.allocation_written": 1,
    "agent.allocation_synced": 1,
    "agent.allocation_renamed": 1,
    "agent.allocated": 1,
    "agent.before_fetch": 25,
    "agent.before_results": 3,
    "agent.before_ack": 3,
}
# Needs a run that keeps pages, which those here do not: tried by itself.
ELSEWHERE = {"agent.page_written": "tests/agents/downloader/test_kept_pages.py"}
# Requests a second: only what must wait for its host is released.
HOST_RATE = 50.0
# An exception at the first of these leaves the others unvisited.
LATER_OF_A_FILE = ("agent.allocation_synced", "agent.allocation_renamed")
# Frozen with work in its hands: longer than an agent may be silent.
LONG_FROZEN = {f"agent.before_{each}" for each in ("fetch", "results", "ack")}
LONG_FROZEN.add("center.before_dispatch")


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("points"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()


def test_every_failpoint_is_tried() -> None:
    found = {
        name
        for path in (ROOT / "apps" / "agents").rglob("*.py")
        for name in re.findall(r'failpoints\.hit\("([a-z_.]+)"\)', path.read_text("utf-8"))
    }
    assert found == {*POINTS, *ELSEWHERE}
    for point, path in ELSEWHERE.items():
        assert f'failpoint="{point}=' in (ROOT / path).read_text("utf-8")


def set_up(cluster: Cluster, point: str, failpoint: str) -> tuple[str, str]:
    """A center and an agent, one of which will meet the failpoint; the agent's name, and whose."""
    cluster.restore()
    limit = HOST_RATE if point == "center.before_release" else 0
    cluster.ask("limit_host", requests_per_second=limit)
    agent = cluster.new_agent()
    is_center = point.startswith("center.")
    if is_center:
        cluster.restart("center", FAILPOINTS=failpoint)
    cluster.start_agent(agent, FAILPOINTS="" if is_center else failpoint)
    return agent, "center" if is_center else agent


@pytest.mark.covers("S1.46", "S1.49")
@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_at_a_failpoint_costs_no_page(
    lasting: Cluster, point: str, measured: Measured
) -> None:
    agent, victim = set_up(lasting, point, f"{point}=kill@{POINTS[point]}")
    is_center = victim == "center"
    if point != "center.registered":
        lasting.use_agents([agent])
    with CountingSite(tree(60)) as site:
        expected = reference(site, delay_seconds=0.01)
        if point != "center.registered":
            run = lasting.crawl(site.url, window=WINDOW)
        lasting.until(lambda: lasting.daemons.processes[victim].poll() is not None, "its end")
        assert lasting.daemons.processes.pop(victim).returncode == -signal.SIGKILL
        if is_center:
            lasting.start_daemon("center")
        else:
            lasting.start_agent(agent)
        if point == "center.registered":
            lasting.use_agents([agent])
            run = lasting.crawl(site.url, window=WINDOW)
        back_s = lasting.seconds_to_new_pages(run, WINDOW)
        # What the dead one had fetched and not acknowledged is fetched again.
        end = check_complete(
            lasting, run, site, expected, again=0 if is_center else WINDOW, lost=is_center
        )
    measured(**end["figures"], back_s=back_s)


@pytest.mark.long("killed there")
@pytest.mark.parametrize("point", POINTS)
def test_a_process_frozen_at_a_failpoint_costs_no_page(
    lasting: Cluster, point: str, measured: Measured
) -> None:
    seconds = 12 if point in LONG_FROZEN else 3
    failpoint = f"{point}=stop:{seconds}@{POINTS[point]}"
    agent, victim = set_up(lasting, point, failpoint)
    if point == "center.registered":
        lasting.daemons.until_met(victim, failpoint)
    lasting.use_agents([agent])
    with CountingSite(tree(60)) as site:
        expected = reference(site, delay_seconds=0.01)
        run = lasting.crawl(site.url, window=WINDOW)
        if point != "center.registered":
            lasting.daemons.until_met(victim, failpoint)
        back_s = lasting.seconds_to_new_pages(run, WINDOW)
        # What it had in its hands is sent again while it stands still, and done when it wakes.
        end = check_complete(lasting, run, site, expected, again=WINDOW, redelivered=WINDOW)
    measured(**end["figures"], back_s=back_s)
    assert end["books"]["failed"] == 0


@pytest.mark.covers("S1.46", "S1.49")
@pytest.mark.parametrize(
    "kind",
    [
        "center",
        "agent",
        *(pytest.param(each, marks=pytest.mark.long("agent")) for each in LATER_OF_A_FILE),
    ],
)
def test_an_exception_at_each_failpoint_ends_neither_process_nor_run(
    lasting: Cluster, kind: str, measured: Measured
) -> None:
    lasting.restore()
    lasting.ask("limit_host", requests_per_second=0)
    points = {name: at for name, at in POINTS.items() if name.startswith(f"{kind}.")}
    # One after another in one run; the later ones of the file of an allocation each alone.
    points = {name: at for name, at in points.items() if name not in LATER_OF_A_FILE} or {kind: 1}
    failpoints = ",".join(f"{name}=raise@{at}" for name, at in points.items())
    agent = lasting.new_agent()
    if kind == "center":
        lasting.ask("limit_host", requests_per_second=HOST_RATE)
        lasting.restart("center", FAILPOINTS=failpoints)
        lasting.start_agent(agent)
    else:
        lasting.start_agent(agent, FAILPOINTS=failpoints)
    lasting.use_agents([agent])
    with CountingSite(tree(60)) as site:
        expected = reference(site, delay_seconds=0.01)
        run = lasting.crawl(site.url, window=WINDOW)
        end = lasting.end_of(run)
    measured(**figures(lasting, run, expected, end))
    assert end["state"] == "exited", (end, lasting.logs())
    # What the center had taken when its thread ended comes to it again.
    check_books(end, redelivered=WINDOW if kind == "center" else 0)
    books = end["books"]
    assert books["left"] == 0, end
    # What an agent cannot download for a reason of its own is told with that reason.
    fetches = "agent.before_fetch" in points
    assert [row["reason"] for row in end["failures"]] == (
        ["bad_request: FailpointError: agent.before_fetch"] if fetches else []
    )
    name = "center" if kind == "center" else agent
    assert lasting.daemons.processes[name].poll() is None, lasting.daemons.log(name)
    for point in points:
        assert point in lasting.daemons.log(name)
