"""Routers between real servers, to be broken; each test has a project of its own."""

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
from tests.plugins.measured import Measured
from yardkit.broker import Broker, Outgoing, QueueSpec, connect

# `make test-faults` says so: more items, longer outages, and what takes long to start.
FULL = os.environ.get("CRAWLYARD_FAULTS") == "full"
ITEMS = 10_000 if FULL else 1500
# What routers have in their hands at most: a batch for each of two workers.
IN_HAND = 2 * 500
# Generous, because it only bounds a failing test.
PATIENCE_SECONDS = 60.0
# Of so many items no rule takes one.
UNROUTED = 10


class RouterHarness:
    """A database, a broker and a Redis server with a clerk; routers as a test wants them."""

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
        with (folder / "clerk.log").open("ab") as log:
            self._clerk = subprocess.Popen(
                [sys.executable, "-m", "tests.routing.faults.clerk"],
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
        """Leave nothing behind."""
        self.daemons.end()
        self._clerk.terminate()
        self._clerk.communicate(timeout=20)
        self.broker.close()

    def ask(self, question: str, **arguments: Any) -> Any:
        """What the clerk answers; see tests/routing/faults/clerk.py."""
        assert self._clerk.stdin is not None
        assert self._clerk.stdout is not None
        self._clerk.stdin.write(json.dumps([question, arguments]) + "\n")
        self._clerk.stdin.flush()
        answer = self._clerk.stdout.readline()
        assert answer, (self.daemons.folder / "clerk.log").read_text()[-3000:]
        return json.loads(answer)

    def until(
        self,
        condition: Callable[[], Any],
        what: str,
        told: Callable[[], Any] = lambda: "",
        seconds: float = PATIENCE_SECONDS,
    ) -> Any:
        """Wait until it holds; what it was then."""
        deadline = time.monotonic() + seconds
        while not (answer := condition()):
            assert time.monotonic() < deadline, f"never happened: {what}: {told()}\n{self.logs()}"
            time.sleep(0.05)
        return answer

    def logs(self) -> str:
        """The end of every log."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}"
            for path in self.daemons.folder.glob("*.log")
        )

    def project(
        self,
        inbound: Mapping[str, Any] | None = None,
        *,
        redis_url: str = "",
        broker_url: str = "",
    ) -> Traffic:
        """A new project that routes from its own queue, or this inbound, to lists of its own."""
        # Lists of an earlier session that was killed may still stand in the same Redis.
        slug = f"faults{next(self._numbers)}-{secrets.token_hex(3)}"
        return Traffic(self, slug, inbound, redis_url or self.redis_url, broker_url)


class Traffic:
    """The items of one project, from its queue to its two lists."""

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
        """Start a router of this project alone; its name."""
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
        """In good order."""
        status, _ = self.harness.daemons.stop(name, signal.SIGTERM)
        assert status == 0, self.harness.logs()

    # --- items ------------------------------------------------------------------------------------

    def publish(self, numbers: Iterable[int], broker: Broker | None = None) -> None:
        """Put these into the queue."""
        # By its id a message that comes again is known.
        messages = [
            Outgoing(item(number), key=self.queue, message_id=f"{self.slug} {number}")
            for number in numbers
        ]
        (broker or self.harness.broker).publish(messages).result(PATIENCE_SECONDS)

    def messages(self) -> list[dict[str, Any]]:
        """What stands in the lists, in the order in which it came there."""
        with redis.Redis.from_url(self.redis_url) as client:
            found = [body for key in self.keys for body in reversed(client.lrange(key, 0, -1))]
        return [json.loads(body) for body in found]

    def until_back(self, begun: float, items: int) -> float | None:
        """Wait for one more message; the seconds since ``begun``, when it was possible again.

        None: of so many items there was nothing left to be sent.
        """
        before = self.count()
        self.harness.until(
            lambda: self.count() > before or self.settled(items), "one more message", self.books
        )
        return time.monotonic() - begun if self.count() > before else None

    def restart(self, items: int, name: str = "second") -> tuple[str, float | None]:
        """Start one where another was killed; its name, and after how long it has sent one."""
        begun = time.monotonic()
        name = self.start(name)
        return name, self.until_back(begun, items)

    def count(self) -> int:
        """How many messages stand in the lists."""
        with redis.Redis.from_url(self.redis_url) as client:
            return sum(int(client.llen(key)) for key in self.keys)

    def books(self) -> dict[str, Any]:
        found: dict[str, Any] = self.harness.ask("books", slug=self.slug)
        return found

    def settled(self, items: int) -> bool:
        """Whether each of so many items has come to where it stays."""
        books = self.books()
        rejected = -(-items // UNROUTED)
        return bool(books["states"] == {"dispatched": items - rejected, "rejected": rejected})

    def until_settled(self, items: int, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for it. Every item is in one state, and those in flight have their deadline: the
        table has a constraint that says so."""
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
        """Nothing is lost, little is there twice, and no message has a second name; the repeats.

        ``measured`` hears of what was found, whatever it was.
        """
        messages = self.messages()
        names: dict[int, set[str]] = {}
        for message in messages:
            names.setdefault(message["n"], set()).add(message["task_uuid"])
        repeats = len(messages) - len(names)
        routed = [number for number in range(items) if number % UNROUTED]
        if measured is not None:
            # What no rule takes stands in the books, and nowhere else.
            rejected = int(self.books()["states"].get("rejected", 0))
            lost = items - rejected - len(names.keys() & set(routed))
            measured(of=items, lost=lost, twice=repeats, back_s=back_s)
        assert sorted(names) == routed
        assert all(len(each) == 1 for each in names.values())
        assert repeats <= most_twice
        return repeats

    def sent_again(self) -> list[str]:
        """The names of those items that stand in a list twice."""
        seen: set[str] = set()
        return [
            name
            for message in self.messages()
            if (name := message["task_uuid"]) in seen or seen.add(name)  # type: ignore[func-returns-value]
        ]


def is_frozen(pid: int) -> bool:
    """Whether a signal has stopped the process."""
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


def item(number: int) -> bytes:
    """The item of that number; one of ``UNROUTED`` fits no outbound."""
    return json.dumps(values(number), ensure_ascii=False).encode()


def values(number: int) -> dict[str, Any]:
    """The same as a dict."""
    kind = number % 2 if number % UNROUTED else 2
    return {"n": number, "kind": kind, "company_name": f"宁乡县楚江冻库{number}"}
