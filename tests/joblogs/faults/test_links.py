"""An ingester behind links to its broker and its databases that break and come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.joblogs.faults.ingester_processes import IngesterHarness
from tests.plugins.measurements import Measured
from tests.plugins.stores import lend_postgres_database, lend_rabbit_vhost
from tests.yardkit.broker_proxy import WAYS, Proxy, before, break_lines

pytestmark = [
    pytest.mark.fault,
    pytest.mark.services,
    pytest.mark.timeout(900),
    pytest.mark.long("a log store that is away"),
]

INGESTER = "ingester"
BROKEN_SECONDS = 12.0
LINES = 20_000
LINKS = {"broker": ("BROKER_URL",), "databases": ("DATABASE_URL", "LOGS_URL")}


@pytest.fixture
def lines() -> int:
    return LINES


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[tuple[IngesterHarness, dict[str, Proxy]]]:
    """Yield ingesters that alone are behind proxies, by the setting of each."""
    with ExitStack() as stack:
        database = stack.enter_context(lend_postgres_database())
        urls = {
            "BROKER_URL": stack.enter_context(lend_rabbit_vhost()),
            "DATABASE_URL": database,
            "LOGS_URL": database,
        }
        proxies = {name: stack.enter_context(before(url)) for name, url in urls.items()}
        harness = stack.enter_context(closing(IngesterHarness(tmp_path / "logs", LINES, **urls)))
        harness.daemons.own[INGESTER] = {
            name: proxies[name].address(url) for name, url in urls.items()
        }
        yield harness, proxies


@pytest.mark.covers("S1.18")
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("how", WAYS)
def test_a_broken_link_costs_no_line(
    behind: tuple[IngesterHarness, dict[str, Proxy]], link: str, how: str, measured: Measured
) -> None:
    harness, proxies = behind
    harness.start(INGESTER)
    harness.daemons.until_logged(INGESTER, "is running")
    broken = [proxies[name] for name in LINKS[link]]
    # The runs write while it is broken.
    breaking = threading.Thread(target=break_lines, args=(broken, how, BROKEN_SECONDS))
    breaking.start()
    harness.emit()
    breaking.join()
    whole_at = time.monotonic()
    if harness.stored() < harness.sent:
        harness.until_stored(harness.stored())
        measured(back_s=time.monotonic() - whole_at)
    harness.until_settled()
    measured(**harness.check_books())
    assert "Traceback" not in harness.daemons.log(INGESTER)
