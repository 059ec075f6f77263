"""A Kafka cluster of librdkafka's own, in a process that a test can stop and wake again.

Run as a program it prints ``host:port`` and serves until its standard input ends.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

# Of a topic, which is made by its first message.
PARTITIONS = 4


class KafkaCluster:
    """In-memory mock cluster."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.servers = self._process.stdout.readline().strip()
        assert ":" in self.servers

    def freeze(self) -> None:
        """Stop answering requests."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=10)


def main() -> None:
    """Serve."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": "ignored:1", "test.mock.num.brokers": 1})
    brokers = producer.list_topics(timeout=10).brokers.values()
    print(",".join(f"{one.host}:{one.port}" for one in brokers), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
