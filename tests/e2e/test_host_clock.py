"""The clock of the whole host is set while everything is at work: all processes see it at once."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.demo_process import Demo
from tests.plugins.measurements import Measured

pytestmark = [
    pytest.mark.fault,
    pytest.mark.long("the clock inside of one process"),
    pytest.mark.timeout(300),
]
HOUR, PAGES = 3600, 601


class HostClock:
    """What a host's clock is ahead by, in seconds."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler (cc), which moves the clock of processes")
        self._file = folder / "moved"
        self.move(0)
        library = folder / "host_clock.so"
        source = Path(__file__).with_name("host_clock.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
        self.environment = {"LD_PRELOAD": str(library), "HOST_CLOCK_FILE": str(self._file)}

    def move(self, seconds: int) -> None:
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("q", seconds))

    def has_moved(self, demo: Demo) -> bool:
        """What a new process of that host takes for the time."""
        code = "import time; print(time.time())"
        said = subprocess.run(
            [demo.process.args[0], "-c", code],  # type: ignore[index]
            env=self.environment,
            capture_output=True,
            check=True,
        )
        return abs(float(said.stdout) - time.time()) > HOUR / 2


@pytest.fixture
def clock(tmp_path: Path) -> HostClock:
    return HostClock(tmp_path)


def back_an_hour(clock: HostClock) -> None:
    clock.move(-HOUR)


def a_day_ahead(clock: HostClock) -> None:
    clock.move(24 * HOUR)


def back_by_seconds(clock: HostClock) -> None:
    for step in range(1, 51):
        clock.move(-step)
        time.sleep(0.05)


@pytest.mark.parametrize("set_it", [back_an_hour, a_day_ahead, back_by_seconds])
def test_a_host_whose_clock_is_set_loses_no_page(
    tmp_path: Path, clock: HostClock, set_it: Callable[[HostClock], None], measured: Measured
) -> None:
    with CountingSite(tree(PAGES - 1), delay_seconds=0.15) as site:
        demo = Demo(tmp_path / "demo", "--exit", "--json", "--url", site.url, **clock.environment)
        try:
            demo.until(lambda: sum(site.hits.values()) > 150)
            at, began = sum(site.hits.values()), time.monotonic()
            set_it(clock)
            if set_it is not back_by_seconds:
                assert clock.has_moved(demo)
            demo.until(lambda: sum(site.hits.values()) > at, 150.0)
            back = time.monotonic() - began
            assert demo.wait(180) == 0, demo.explain()
            report = demo.report()
        finally:
            demo.end()
    twice = sum(count - 1 for count in site.hits.values())
    measured(of=PAGES, lost=PAGES - report["pages"], twice=twice, back_s=back)
    assert (report["state"], report["balanced"], report["left"]) == ("exited", True, 0), report
    assert (report["pages"], report["failed"]) == (PAGES, 0), report
    assert "Traceback" not in demo.log, demo.explain()
