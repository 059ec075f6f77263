"""The peer: a Celery worker with one process, and a task that does nothing with an item.

``python -m tools.benches.router_peer QUEUE`` reads items, one a line of JSON, and sends a task
for each; the worker is Celery's own command, with this module's ``app``. Everything is as Celery
has it by itself, but for what a worker does beside its tasks: it keeps no results, and neither
listens to nor talks with other workers, all of which would only cost it time.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from celery import Celery

app = Celery("crawlyard_bench", broker=os.environ.get("BROKER_URL", ""))
app.conf.update(
    task_ignore_result=True, worker_enable_remote_control=False, worker_hijack_root_logger=False
)


@app.task(name="bench.nothing")  # type: ignore[untyped-decorator]
def nothing(item: dict[str, Any]) -> None:
    """What the router's work is compared with."""


def worker(queue: str) -> list[str]:
    """The argv of the worker."""
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR")
    pool = ("--pool=prefork", "--concurrency=1", f"--queues={queue}")
    return [
        *(sys.executable, "-m", "celery", "--app=tools.benches.router_peer", "worker"),
        *pool,
        *quiet,
    ]


def main() -> None:
    """Send a task for each line."""
    with app.producer_pool.acquire(block=True) as producer:
        for line in sys.stdin:
            nothing.apply_async((json.loads(line),), queue=sys.argv[1], producer=producer)


if __name__ == "__main__":
    main()
