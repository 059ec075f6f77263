"""Pages through the center and its agents, and changes of the way while requests are stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.plugins.measurements import Measured
from tests.plugins.stores import lend_rabbit_vhost
from tests.requeststore.daemon.fetcher_processes import Plant, urls
from tests.requeststore.daemon.pages_site import Site

pytestmark = [pytest.mark.slow("a fetcher, centers and agents"), pytest.mark.timeout(300)]
CENTER: dict[str, Any] = {
    "fetch": {"through": "center", "policy": "fixed", "agents": 1, "timeout_seconds": 2}
}
RABBIT = pytest.param("rabbitmq", marks=pytest.mark.services)


@pytest.fixture(scope="module", params=["embedded", RABBIT])
def yard(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Plant]:
    """With a center, an agent and a fetcher."""
    with ExitStack() as stack:
        environment = {}
        if request.param == "rabbitmq":
            environment["BROKER_URL"] = stack.enter_context(lend_rabbit_vhost())
        made = stack.enter_context(closing(Plant(tmp_path_factory.mktemp("yard"), **environment)))
        made.daemons.start("center", "run_center", "--name", "c1")
        start_agent(made, "a1")
        made.start()
        yield made


def start_agent(plant: Plant, name: str) -> None:
    plant.daemons.start(name, "run_agent", "--id", name, "--name", name)


@pytest.mark.covers("S4.13", "S4.21")
def test_agents_download_and_are_given_back(yard: Plant, site: Site) -> None:
    yard.save(far={**CENTER, "retry_seconds": 1})
    ids = yard.submit("far", *urls(site.url, range(20)), f"{site.url}/status/404")
    yard.until_flags("far", {1: 20, 2: 1})
    assert len(yard.recorded("far")) == 20
    assert yard.find("far", ids[0])[0]["result"]["status"] == 200
    assert len(yard.ask("owners")) == 1

    yard.save(far={"fetch": {"through": "direct"}})
    yard.until(lambda: yard.ask("owners") == [], "its agents are given back")
    yard.submit("far", *urls(site.url, range(5)))
    yard.until_flags("far", {1: 25, 2: 1})

    yard.save(far={**CENTER, "retry_seconds": 1})
    yard.submit("far", *urls(site.url, range(5)))
    yard.until_flags("far", {1: 30, 2: 1})
    yard.save(far=None)
    yard.until(lambda: yard.ask("owners") == [], "its agents are given back again")


@pytest.mark.covers("S4.22")
def test_dead_agents_and_centers_are_survived(yard: Plant, site: Site) -> None:
    yard.save(deep=CENTER)
    yard.submit("deep", *urls(site.url, range(5)))
    yard.until_flags("deep", {1: 5})

    yard.kill("a1")
    start_agent(yard, "a2")
    yard.submit("deep", *urls(site.url, range(5)))
    yard.until_flags("deep", {1: 10})

    yard.kill("center")
    yard.submit("deep", *urls(site.url, range(5)))
    yard.daemons.start("center", "run_center", "--name", "c2")
    yard.until_flags("deep", {1: 15})
    assert len(set(yard.recorded("deep"))) == len(yard.recorded("deep")) == 15

    assert yard.stop() < 4.5
    yard.until(lambda: yard.ask("owners") == [], "a fetcher that stops gives its agents back")


@pytest.mark.fault
@pytest.mark.long("an exception at a page that the fetcher downloads itself")
@pytest.mark.covers("S4.22")
def test_an_exception_at_one_answer_keeps_no_other_from_coming(
    yard: Plant, site: Site, measured: Measured
) -> None:
    if "f1" in yard.daemons.processes:
        yard.kill()
    yard.save(tried=CENTER)
    yard.start("tried", FAILPOINTS="fetcher.downloaded=raise@3")
    ids = set(yard.submit("tried", *urls(site.url, range(20))))
    yard.until_flags("tried", {1: 20})
    found = yard.recorded("tried")
    measured(of=20, lost=len(ids - set(found)), twice=len(found) - len(set(found)))
    assert set(found) == ids
    assert "FailpointError: fetcher.downloaded" in yard.daemons.log("tried")
    # It goes on with what comes next.
    yard.submit("tried", *urls(site.url, range(20)))
    yard.until_flags("tried", {1: 40})
