"""A RabbitMQ node of a test's own, to be stopped and started at will."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.demo_process import free_port
from tests.plugins.markers import required_kinds

SERVER = next(
    (
        path
        for path in ("/usr/lib/rabbitmq/bin/rabbitmq-server", shutil.which("rabbitmq-server") or "")
        if path and Path(path).exists()
    ),
    "",
)
# Mostly 7 s, on a busy machine several times that.
START_SECONDS = 90.0


class RabbitNode:
    """Own ports, own epmd, own data; what is durable outlives a stop, as on any server."""

    def __init__(self, folder: Path, *, management: bool = False) -> None:
        """``management``: with its HTTP API, which takes a second longer to start."""
        self.folder = folder
        self.management_port = free_port() if management else 0
        self.port, self._epmd, self._distribution = free_port(), free_port(), free_port()
        for name in ("home", "log", "mnesia"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        settings = [
            f"listeners.tcp.1 = 127.0.0.1:{self.port}",
            "distribution.listener.interface = 127.0.0.1",
            "loopback_users = none",
            "log.file.level = warning",
            "log.console = false",
            "vm_memory_high_watermark.absolute = 1GB",
            "disk_free_limit.absolute = 100MB",
        ]
        if management:
            settings += [
                "management.tcp.ip = 127.0.0.1",
                f"management.tcp.port = {self.management_port}",
            ]
        (folder / "rabbitmq.conf").write_text("\n".join(settings) + "\n")
        (folder / "enabled_plugins").write_text("[rabbitmq_management]." if management else "[].")
        self._name = f"crawlyard{self.port}@localhost"
        self._environment = os.environ | {
            "HOME": str(folder / "home"),
            "RABBITMQ_NODENAME": self._name,
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
            ),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.url_by(self.port)

    @property
    def management_url(self) -> str:
        return f"http://guest:guest@127.0.0.1:{self.management_port}"

    def url_by(self, port: int) -> str:
        """Its URL by way of a proxy that listens on ``port``."""
        return f"amqp://guest:guest@127.0.0.1:{port}/%2F"

    def start(self) -> None:
        """Returns once it takes connections."""
        with (self.folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [SERVER],
                env=self._environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not all(map(_listens, filter(None, (self.port, self.management_port)))):
            said = (self.folder / "output.txt").read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.05)

    def stop(self) -> None:
        """In good order. Returns when nothing of it is left, or its ports would still be taken."""
        process, self._process = self._process, None
        if process is None:
            return
        # The wrapper stops the node when it is told to.
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._stop_names()

    def control(self, *words: str) -> None:
        """What its operator tells the running node, by rabbitmqctl."""
        command = [str(Path(SERVER).with_name("rabbitmqctl")), "--node", self._name, *words]
        subprocess.run(
            command, env=self._environment, check=True, capture_output=True, timeout=START_SECONDS
        )

    def _stop_names(self) -> None:
        """End the epmd of this node alone; it forgets the node a moment after its end."""
        for _ in range(50):
            done = subprocess.run(
                ["epmd", "-kill"], env=self._environment, capture_output=True, check=False
            )
            if done.returncode == 0:
                return
            time.sleep(0.1)


@contextlib.contextmanager
def lend_rabbit_node(folder: Path, *, management: bool = False) -> Iterator[RabbitNode]:
    """One that takes connections. Skips a test that has no server to start, or lets it fail."""
    if not SERVER:
        problem = "RabbitMQ: no rabbitmq-server on this machine to start a node of our own with"
        if "services" in required_kinds():
            pytest.fail(problem, pytrace=False)
        pytest.skip(problem)
    node = RabbitNode(folder, management=management)
    try:
        node.start()
        yield node
    finally:
        node.stop()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
