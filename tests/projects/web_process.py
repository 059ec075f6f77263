"""The web process on a port of its own, with a data folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60
# Says on which port it listens, then serves.
SCRIPT = """
import asyncio, socket
import uvicorn
from crawlyard.asgi import application
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
server = uvicorn.Server(uvicorn.Config(application, lifespan="off", log_level="warning"))
print(listener.getsockname()[1], flush=True)
asyncio.run(server.serve([listener]))
"""


@dataclass
class WebProcess:
    """It runs until the block ends, or a failpoint ends it."""

    port: int
    process: subprocess.Popen[str]


def web_environment(data: Path, **settings: str) -> dict[str, str]:
    """For the web process and for commands beside it."""
    return os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
        "DJANGO_SETTINGS_MODULE": "crawlyard.settings.web",
        "CRAWLYARD_DATA": str(data),
        **settings,
    }


@contextmanager
def web_process(data: Path, **settings: str) -> Iterator[WebProcess]:
    """Serve, with these settings."""
    server = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env=web_environment(data, **settings),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        with server.stdout:
            yield WebProcess(int(server.stdout.readline()), server)
    finally:
        server.terminate()
        server.wait(START_SECONDS)
