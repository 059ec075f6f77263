"""Harness for fault tests: routers between real servers, and a project per test."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil
import redis

from tests.e2e.daemon_processes import ROOT, Daemons
from tests.plugins.measurements import Measured
from yardkit.broker import Broker, Outgoing, QueueSpec, connect

# Set by `make test-faults`: more items, longer outages, and servers that start slowly.
FULL = os.environ.get("CRAWLYARD_FAULTS") == "full"
ITEMS = 10_000 if FULL else 1500
# Most items that a router processes at once: a batch for each of two workers.
IN_HAND = 2 * 500
# Generous, because it only bounds a failing test.
PATIENCE_SECONDS = 60.0
# One of this many items matches no rule.
UNROUTED = 10


class RouterHarness:
    """A database, a broker, Redis and a helper process; tests start routers as needed."""

    def __init__(self, folder: Path, database: str, broker_url: str, redis_url: str) -> None:
        self.broker_url = broker_url
        self.redis_url = redis_url
        self.daemons = Daemons(
            folder,
            PYTHONPATH=f"{ROOT}:{ROOT / 'platform'}",
            DATABASE_URL=database,
            BROKER_URL=broker_url,
            REDIS_URL=redis_url,
        )
        self.broker: Broker = connect(broker_url, name="test of faults")
        self._numbers = itertools.count(1)
        with (folder / "helper.log").open("ab") as log:
            self._helper = subprocess.Popen(
                [sys.executable, "-m", "tests.routing.faults.helper_process"],
                env={
                    **self.daemons.environment,
                    "DJANGO_SETTINGS_MODULE": "crawlyard.settings.base",
                },
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def close(self) -> None:
        """Stop all processes and delete queues and lists."""
        self.daemons.end()
        self._helper.terminate()
        self._helper.communicate(timeout=20)
        self.broker.close()

    def ask(self, question: str, **arguments: Any) -> Any:
        """Return the answer of the helper process; see tests/routing/faults/helper_process.py."""
        assert self._helper.stdin is not None
        assert self._helper.stdout is not None
        self._helper.stdin.write(json.dumps([question, arguments]) + "\n")
        self._helper.stdin.flush()
        answer = self._helper.stdout.readline()
        assert answer, (self.daemons.folder / "helper.log").read_text()[-3000:]
        return json.loads(answer)

    def until(
        self,
        condition: Callable[[], Any],
        what: str,
        told: Callable[[], Any] = lambda: "",
        seconds: float = PATIENCE_SECONDS,
    ) -> Any:
        """Wait until a condition is true; return its value."""
        deadline = time.monotonic() + seconds
        while not (answer := condition()):
            assert time.monotonic() < deadline, f"never happened: {what}: {told()}\n{self.logs()}"
            time.sleep(0.05)
        return answer

    def logs(self) -> str:
        """Return the end of every log."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}"
            for path in self.daemons.folder.glob("*.log")
        )

    def project(
        self, inbound: Mapping[str, Any] | None = None, *, redis_url: str = "", broker_url: str = ""
    ) -> Traffic:
        """Create a project that routes from its own queue, or ``inbound``, to its own lists."""
        # Redis may still hold lists of an earlier test session that was killed.
        slug = f"faults{next(self._numbers)}-{secrets.token_hex(3)}"
        return Traffic(self, slug, inbound, redis_url or self.redis_url, broker_url)


class Traffic:
    """Items of one project, on the way from its queue to its two lists."""

    def __init__(
        self,
        harness: RouterHarness,
        slug: str,
        inbound: Mapping[str, Any] | None,
        redis_url: str,
        broker_url: str,
    ) -> None:
        self.harness = harness
        self.slug = slug
        self.queue = f"{slug}.in"
        self.keys = [f"{slug}:even", f"{slug}:odd"]
        self.redis_url = redis_url
        rabbit = {
            "class": "rabbitmq.RabbitInbound",
            "init": {"url": broker_url or harness.broker_url, "queue": self.queue},
        }
        if inbound is None and not broker_url:
            harness.broker.declare(QueueSpec(self.queue))
        outbounds = [
            {
                "name": key,
                "class": "redis_queue.RedisListOutbound",
                "init": {"url": redis_url, "key": key},
                "selector": [f"kind == {number}"],
            }
            for number, key in enumerate(self.keys)
        ]
        rules = {"inbound": [{"name": "in", **(inbound or rabbit)}], "outbound": outbounds}
        harness.ask("use", slug=slug, rules=rules)

    # --- routers ----------------------------------------------------------------------------------

    def start(self, name: str = "router", **environment: str) -> str:
        """Start a router for this project only; return its name."""
        name = f"{self.slug}-{name}"
        self.harness.daemons.start(
            name, "run_router", "--name", name, "--project", self.slug, **environment
        )
        return name

    def until_killed(self, name: str) -> None:
        """Wait until a failpoint has killed it."""
        process = self.harness.daemons.processes[name]
        self.harness.until(lambda: process.poll() is not None, f"the end of {name}")
        assert self.harness.daemons.processes.pop(name).returncode == -signal.SIGKILL, (
            self.harness.logs()
        )

    def stop(self, name: str) -> None:
        """Stop a router gracefully."""
        status, _ = self.harness.daemons.stop(name, signal.SIGTERM)
        assert status == 0, self.harness.logs()

    # --- items ------------------------------------------------------------------------------------

    def publish(self, numbers: Iterable[int], broker: Broker | None = None) -> None:
        """Publish items to the queue."""
        # The message id identifies a redelivered message.
        messages = [
            Outgoing(item(number), key=self.queue, message_id=f"{self.slug} {number}")
            for number in numbers
        ]
        (broker or self.harness.broker).publish(messages).result(PATIENCE_SECONDS)

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages in the lists, in the order of arrival."""
        with redis.Redis.from_url(self.redis_url) as client:
            found = [body for key in self.keys for body in reversed(client.lrange(key, 0, -1))]
        return [json.loads(body) for body in found]

    def until_back(self, begun: float, items: int) -> float | None:
        """Wait for one more message; return the seconds since ``begun``, the end of the fault.

        Returns None when all items had been sent already.
        """
        before = self.count()
        self.harness.until(
            lambda: self.count() > before or self.settled(items), "one more message", self.books
        )
        return time.monotonic() - begun if self.count() > before else None

    def restart(self, items: int, name: str = "second") -> tuple[str, float | None]:
        """Start a router after another was killed; return its name and the seconds to a message."""
        begun = time.monotonic()
        name = self.start(name)
        return name, self.until_back(begun, items)

    def count(self) -> int:
        """Return the number of messages in the lists."""
        with redis.Redis.from_url(self.redis_url) as client:
            return sum(int(client.llen(key)) for key in self.keys)

    def books(self) -> dict[str, Any]:
        found: dict[str, Any] = self.harness.ask("books", slug=self.slug)
        return found

    def settled(self, items: int) -> bool:
        """Return whether all items are in their final place."""
        books = self.books()
        rejected = -(-items // UNROUTED)
        return bool(books["states"] == {"dispatched": items - rejected, "rejected": rejected})

    def until_settled(self, items: int, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until all items are settled.

        Deadlines need no check: a constraint of the table requires one for each open item."""
        self.harness.until(
            lambda: self.settled(items), f"{items} items settled", self.books, seconds
        )
        books = self.books()
        assert books["holds"], books
        assert books["received"] == items

    def check(
        self,
        items: int,
        *,
        most_twice: int = IN_HAND,
        measured: Measured | None = None,
        back_s: float | None = None,
    ) -> int:
        """Check that no item is lost and few are duplicated; return the number of duplicates.

        The results are recorded in ``measured`` before the checks.
        """
        messages = self.messages()
        names: dict[int, set[str]] = {}
        for message in messages:
            names.setdefault(message["n"], set()).add(message["task_uuid"])
        repeats = len(messages) - len(names)
        routed = [number for number in range(items) if number % UNROUTED]
        if measured is not None:
            # An item that no rule accepts is only in the counters.
            rejected = int(self.books()["states"].get("rejected", 0))
            lost = items - rejected - len(names.keys() & set(routed))
            measured(of=items, lost=lost, twice=repeats, back_s=back_s)
        assert sorted(names) == routed
        assert all(len(each) == 1 for each in names.values())
        assert repeats <= most_twice
        return repeats

    def sent_again(self) -> list[str]:
        """Return the UUIDs of items that are in a list twice."""
        seen: set[str] = set()
        return [
            name
            for message in self.messages()
            if (name := message["task_uuid"]) in seen or seen.add(name)  # type: ignore[func-returns-value]
        ]


def is_frozen(pid: int) -> bool:
    """Return whether a signal has stopped the process."""
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


def item(number: int) -> bytes:
    """Return item ``number`` as JSON; one in ``UNROUTED`` matches no outbound."""
    return json.dumps(values(number), ensure_ascii=False).encode()


def values(number: int) -> dict[str, Any]:
    """Return item ``number`` as a dict."""
    kind = number % 2 if number % UNROUTED else 2
    return {"n": number, "kind": kind, "company_name": f"宁乡县楚江冻库{number}"}
