"""Counts the bytes that a process publishes to the broker.

``python -m tools.benches.broker_bytes FILE SCRIPT|MODULE [ARGUMENTS]`` runs a program so.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from yardkit.broker import Outgoing


def count(path: Path) -> None:
    """Append queue and size of each message to ``path`` when this process publishes it."""
    from yardkit.broker.rabbitmq import RabbitBroker
    from yardkit.broker.sqlite import SqliteBroker

    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for broker in (RabbitBroker, SqliteBroker):
        _count(broker, file)


def _count(broker: Any, file: int) -> None:
    publish = broker.publish

    def counted(self: Any, messages: Sequence[Outgoing]) -> Future[None]:
        lines = [f"{one.exchange or one.key} {len(one.body)}\n" for one in messages]
        os.write(file, "".join(lines).encode())
        future: Future[None] = publish(self, messages)
        return future

    broker.publish = counted


def total(path: Path) -> Counter[str]:
    """Return the bytes published so far, by exchange or the first word of the queue's name."""
    sizes: Counter[str] = Counter()
    if path.exists():
        # The last line may be being written.
        for line in path.read_text().split("\n")[:-1]:
            name, _, size = line.rpartition(" ")
            sizes[name.partition(".")[0]] += int(size)
    return sizes


def main() -> None:
    """Run the program of the command line."""
    count(Path(sys.argv[1]))
    program = sys.argv[2]
    sys.argv = sys.argv[2:]
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
