"""One agent's redialler as a process of its own: ``python -m ... LOCK LOG INTERVAL``."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from apps.agents.downloader.fetchers.redial import Redialer, RedialOptions
from yardkit.clock import SystemClock


async def main(lock: str, log: str, interval: str) -> int:
    script = "echo start >> $0; sleep 0.3; echo end >> $0"
    options = RedialOptions(("sh", "-c", script, log), Path(lock), "", float(interval))
    redialer = Redialer(options, SystemClock())
    started_at = time.time()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    worked = await redialer.redial(started_at)
    return 0 if worked else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
