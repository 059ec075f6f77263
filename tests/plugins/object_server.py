"""The object server of a folder in a thread, and a center that hands out its addresses."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from apps.agents.center.addresses import AddressIssuer
from apps.agents.center.liveness import Liveness
from apps.agents.center.runs import OpenAllocation, RunTable
from apps.agents.center.threads import StepThread
from yardkit import topology
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.objects import ObjectStore, open_objects
from yardkit.objects.folder import FolderStore
from yardkit.objects.server import ObjectServer
from yardkit.objects.signing import AddressSigner

SECRET = "a secret of the tests"


class ServedFolder:
    """A folder, its server, and a switch that makes the server useless."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: Counter[str] = Counter()
        self.broken = 0
        self.url = ""
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._started.wait(10)
        store = open_objects(f"file://{folder}", public_url=self.url, signing_secret=SECRET)
        assert isinstance(store, FolderStore)
        self.store = store
        self._server = ObjectServer(store, AddressSigner(self.url, SECRET), "/objects")

    def files(self) -> list[str]:
        """Return the keys of all objects."""
        return sorted(info.key for info in self.store.list(""))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests[request.method] += 1
        if self.broken:
            return web.Response(status=self.broken, text="the disk is full")
        return await self._server.handle(request)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/objects"
        self._started.set()
        await self._stop.wait()
        await runner.cleanup()


@pytest.fixture
def served_folder(tmp_path: Path) -> Iterator[ServedFolder]:
    """A folder that the object server serves."""
    folder = ServedFolder(tmp_path / "objects")
    yield folder
    folder.close()


@contextlib.contextmanager
def issuing(broker: Broker, store: ObjectStore, *agents: str) -> Iterator[None]:
    """Let the center's own part answer questions for addresses: ``agents`` serve each run."""

    def load(run: int) -> OpenAllocation:
        return OpenAllocation(run=run, policy="random", agents=agents, project=1)

    broker.declare(topology.CENTER_ADDRESSES)
    clock = SystemClock()
    runs = RunTable(liveness=Liveness(clock.monotonic), load=load, incarnation="test", clock=clock)
    issuer = AddressIssuer(
        broker=broker,
        runs=runs,
        secret=SECRET,
        open_store=lambda: store,
        count=lambda name, number: None,
    )
    issuer.open()
    thread = StepThread("addresses", lambda timeout: issuer.step(0.05))
    thread.start()
    try:
        yield
    finally:
        thread.ask_to_stop()
        thread.join(5)
        issuer.close()
        assert thread.error is None
