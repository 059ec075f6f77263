"""One installation of the bench of logs, in a process with settings of its own.

``python -m tools.benches.logs_clerk`` reads one ``Task`` as a line of JSON, makes tables, a
project and runs, stores lines from messages as the ingester does, and answers with one line of
figures. Between two portions the peer writes what the first has stored.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import django
import msgspec

if TYPE_CHECKING:
    from tools.benches.logs_peer import Peer

RUNS: Final = 20
# As the ingester takes them.
MESSAGES: Final = 20
LINES_OF_MESSAGE: Final = 500
ASKED: Final = 20
_WORDS: Final = tuple(f"word{n}" for n in range(3000))
_CHINESE: Final = "今天的商品库存不足请求失败重试超时解析页面完成下载链接数据采集任务队列"
# In every hundredth line.
_RARE: Final = "价格"


class Task(msgspec.Struct):
    """How many lines, and where the peer writes: the address of a store, or nowhere."""

    lines: int
    peer: str


class Side:
    """Seconds by the wall clock and of this process's processor time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.lines = 0

    def time(self, lines: int, work: Callable[[], object]) -> None:
        """Have ``work`` done, for so many lines."""
        began, cpu = time.perf_counter(), time.process_time()
        work()
        self.seconds += time.perf_counter() - began
        self.cpu_seconds += time.process_time() - cpu
        self.lines += lines

    def figures(self) -> dict[str, Any]:
        """Of all together."""
        return {
            "lines": self.lines,
            "lines_per_second": round(self.lines / self.seconds),
            "cpu_us_per_line": round(1e6 * self.cpu_seconds / self.lines, 2),
        }


def main() -> None:
    """Do what the line says."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "crawlyard.settings.base")
    django.setup()
    task = msgspec.json.decode(sys.stdin.readline(), type=Task)
    sys.stdout.write(json.dumps(measure(task)) + "\n")
    sys.stdout.flush()


def measure(task: Task) -> dict[str, Any]:
    """Portion by portion: ours, then the peer with the same rows."""
    from apps.joblogs.services import close_log_store, log_store, store_lines
    from tools.benches.logs_peer import open_peer
    from yardkit.garbage_collector import spare_the_collector
    from yardkit.protocol import LogBatch, decode

    runs = _prepare()
    log_store()
    peer: Peer | None = open_peer(task.peer) if task.peer else None
    # As the ingester does.
    spare_the_collector()
    ours, copied = Side(), Side()
    for bodies in _portions(runs, task.lines):

        def store(bodies: Sequence[bytes] = bodies) -> None:
            messages = [decode(body) for body in bodies]
            batches = [one for one in messages if isinstance(one, LogBatch)]
            store_lines(batches=batches, now=datetime.now(UTC))

        ours.time(len(bodies) * LINES_OF_MESSAGE, store)
        if peer is not None:
            rows = peer.read()
            copied.time(rows.lines, partial(peer.write, rows))
    result = {
        **ours.figures(),
        "lost": _lost(ours.lines),
        "search_ms": _search_ms(),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "engine": log_store().check(),
        "peer": copied.figures() if peer is not None else None,
    }
    if peer is not None:
        peer.close()
    close_log_store()
    return result


def _prepare() -> list[int]:
    """Tables, and runs of one project."""
    from django.core.management import call_command

    from apps.jobs.models import Job, Run
    from apps.projects.models import Project

    call_command("migrate", verbosity=0)
    project = Project.objects.create(name="bench", slug="bench")
    jobs = [Job.objects.create(project=project, name=f"job{n}") for n in range(RUNS)]
    return [Run.objects.create(job=job, created_at=datetime.now(UTC)).pk for job in jobs]


def _portions(runs: Sequence[int], lines: int) -> Iterator[list[bytes]]:
    """Messages as the ingester takes them; times rise, and end about now."""
    from yardkit.protocol import LogBatch, encode

    dice, seqs = random.Random(7), dict.fromkeys(runs, 0)  # noqa: S311 - no secret
    first = (datetime.now(UTC) - timedelta(minutes=30)).timestamp()
    messages, done = -(-lines // LINES_OF_MESSAGE), 0
    while done < messages:
        bodies = []
        for number in range(done, min(done + MESSAGES, messages)):
            run = runs[number % len(runs)]
            begin = number * LINES_OF_MESSAGE
            records = [
                _record(dice, n, seqs[run] + n - begin + 1, first + n * 1800 / lines)
                for n in range(begin, begin + LINES_OF_MESSAGE)
            ]
            seqs[run] += LINES_OF_MESSAGE
            bodies.append(encode(LogBatch(stream=f"run:{run}", boot="bench", lines=records)))
        done += len(bodies)
        yield bodies


def _record(dice: random.Random, number: int, seq: int, at: float) -> Any:
    from yardkit.protocol import LogRecord

    text = (
        f"page {number} fetched http://example.com/item/{dice.randrange(1_000_000)}"
        f"?x={dice.randrange(100)} in {dice.randrange(900)} ms "
    ) + " ".join(dice.choices(_WORDS, k=4))
    if number % 5 == 0:
        begin = dice.randrange(20)
        text += f" {_CHINESE[begin : begin + dice.randrange(4, 16)]}"
    if number % 100 == 0:
        text += f" 今天{_RARE}上涨"
    level = "ERROR" if number % 100 == 1 else "INFO" if number % 3 else "DEBUG"
    return LogRecord(seq, at, level, "spider", text)


def _lost(lines: int) -> int:
    """Lines that are not kept, or, of those with a certain word, not found by it."""
    from apps.joblogs.services import log_store
    from apps.joblogs.stores.base import Search

    kept = sum(one.lines for one in log_store().usages())
    found, cursor = 0, ""
    while True:
        page = log_store().search(Search(projects=None, text=_RARE), cursor=cursor, limit=1000)
        found, cursor = found + len(page.lines), page.next
        if not cursor:
            break
    return max(lines - kept, -(-lines // 100) - found)


def _search_ms() -> dict[str, float]:
    """The slowest but one of some searches for the newest hundred lines with each of these."""
    from apps.joblogs.services import log_store
    from apps.joblogs.stores.base import Search

    found = {}
    for text in (_RARE, "word17", "word17 word18", "涨", "nosuchword", '"fetched http"'):
        took = []
        for _ in range(ASKED):
            began = time.perf_counter()
            log_store().search(Search(projects=None, text=text), limit=100)
            took.append(1000 * (time.perf_counter() - began))
        found[text] = round(sorted(took)[-2], 1)
    return found


if __name__ == "__main__":
    main()
