"""Counters that a crawl of ``bench download --profile web`` keeps about itself."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

# Pages after which the memory is noted; it is compared with that of the end.
EARLY_PAGES: Final = 10_000


class Crawl:
    """The figures of one process; ``write`` stores them as JSON."""

    def __init__(self, report: Path) -> None:
        self.pages = 0
        self.failed = 0
        self.bytes = 0
        self._report = report
        self._first = self._last = 0.0
        self._cpu_before = 0.0
        self._early_mb = 0.0

    def begin(self) -> None:
        """Start the clock: not at the imports of a framework, but at the first request."""
        self._first = time.monotonic()
        self._cpu_before = time.process_time()

    def took(self, size: int) -> None:
        """Count a page of so many bytes."""
        self.pages += 1
        self.bytes += size
        self._last = time.monotonic()
        if self.pages == EARLY_PAGES:
            self._early_mb = memory_mb()[0]

    def write(self) -> None:
        """Write the figures."""
        seconds = self._last - self._first
        now_mb, peak_mb = memory_mb()
        figures = {
            "pages": self.pages,
            "failed": self.failed,
            "page_bytes": self.bytes // max(1, self.pages),
            "seconds": round(seconds, 3),
            "cpu_seconds": round(time.process_time() - self._cpu_before, 2),
            "early_rss_mb": self._early_mb,
            "end_rss_mb": now_mb,
            "peak_rss_mb": peak_mb,
        }
        self._report.write_text(json.dumps(figures), encoding="ascii")


def memory_mb(process: int | str = "self") -> tuple[float, float]:
    """Return the resident memory of a process, now and at its peak.

    Not ``ru_maxrss``, which begins with the memory of the process that has started this one.

    Raises ``OSError``: there is no such process.
    """
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    sizes = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("Vm"))
    now, peak = (round(int(sizes[name].split()[0]) / 1024, 1) for name in ("VmRSS", "VmHWM"))
    return now, peak
