"""Targets that the tests of faults deliver to, and what has arrived there."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.alerts.servers import Asked, Reply, serving
from tests.datasets.deliveries import rows_in
from tests.datasets.faults.writer_processes import PROJECT
from tests.datasets.peers import KEY, MAKERS
from tests.datasets.peers import read_files as rows_of_files
from yardkit.broker import connect
from yardkit.objects import open_objects

# Of these a webhook refuses each, until it is told not to.
REFUSED_EVERY = 97


@dataclass
class Place:
    """A target: the fields of its delivery, and the IDs of all items that have arrived there.

    ``repeats``: an item that comes again is there twice.
    """

    fields: dict[str, Any]
    read: Callable[[], list[str]]
    repeats: bool = False


class Receiver:
    """Receiver of webhooks that keeps the IDs of all items it was sent."""

    def __init__(self) -> None:
        self.lenient = False
        self.ids: list[str] = []
        self._calls: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def answer(self, asked: Asked) -> Reply:
        items = asked.json["items"]
        if not self.lenient and any(item["item"]["n"] % REFUSED_EVERY == 0 for item in items):
            return 422, {}, b"not these"
        ids = [item["id"] for item in items]
        with self._lock:
            # A call that is repeated has the same items.
            assert self._calls.setdefault(asked.headers["webhook-id"], ids) == ids
            self.ids += ids
        return 204, {}, b""


class Targets:
    """Targets by name; what they need is given back by ``stack``."""

    def __init__(self, request: Any, folder: Path, stack: contextlib.ExitStack) -> None:
        self.receiver = Receiver()
        self.environment = {
            "RECORDS_URL": f"sqlite:///{folder / 'records.sqlite3'}",
            "RECORDS_DIR": str(folder / "records"),
            "DELIVERY_ALLOWED_NETWORKS": "127.0.0.0/8",
        }
        self._request = request
        self._folder = folder
        self._stack = stack

    def make(self, name: str) -> Place:
        """Return one: of a name below, or a server of the contract tests."""
        own = getattr(self, f"_{name}", None)
        return own() if own is not None else self._peer(name)

    def _table(self, name: str = "rows", mode: str = "continuous") -> Place:
        path = self._folder / "records.sqlite3"
        return Place(
            {"kind": "table", "options": {"table": name}, "mode": mode},
            lambda: [row["_id"] for row in rows_in(path, f"records_p{PROJECT}_{name}")],
        )

    def _ended(self) -> Place:
        return self._table("ended", "at_end")

    def _files(self, ending: str) -> Place:
        url = f"file://{self._folder}/records/p{PROJECT}/{ending}"
        options = {
            "folder": ending,
            "format": ending,
            "template": "{run}/{batch}/{offset}.{format}",
        }
        return Place(
            {"kind": "folder", "options": options},
            lambda: [row["_id"] for row in rows_of_files(open_objects(url), ending)],
        )

    def _jsonl(self) -> Place:
        return self._files("jsonl")

    def _parquet(self) -> Place:
        return self._files("parquet")

    def _queue(self, broker_url: str = "") -> Place:
        taken: list[str] = []
        url = broker_url or f"sqlite:///{self._folder / 'broker.sqlite3'}"

        def read() -> list[str]:
            with contextlib.closing(connect(url, name="reader")) as broker:
                subscription = broker.subscribe(f"items.p{PROJECT}.out", prefetch=2000)
                while messages := subscription.take(2000, timeout=1.0):
                    for message in messages:
                        taken.append(json.loads(message.body)["id"])
                        assert message.message_id == taken[-1]
                    subscription.ack(messages)
            return list(taken)

        return Place({"kind": "rabbitmq", "options": {"queue": "out"}}, read, repeats=True)

    def _webhook(self) -> Place:
        server = self._stack.enter_context(serving(self.receiver.answer))
        return Place(
            {"kind": "webhook", "url": f"{server.url}/items", "credentials": {"key": KEY}},
            lambda: list(self.receiver.ids),
            repeats=True,
        )

    def _peer(self, name: str) -> Place:
        peer = MAKERS[name](self._request, self._folder)
        fields = {
            "kind": peer.settings.kind,
            "url": peer.settings.url,
            "options": msgspec.to_builtins(peer.settings.options),
            "credentials": msgspec.to_builtins(peer.settings.credentials),
        }

        def read() -> list[str]:
            return [row["_id"] for row in peer.read()]

        return Place(fields, read, peer.repeats)
