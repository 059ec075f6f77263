"""nginx with deploy/nginx/nginx.conf before web processes of this machine."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.daemon_processes import ROOT

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
CONFIGURATION = ROOT / "deploy" / "nginx" / "nginx.conf"


def adapted(folder: Path, port: int, webs: Sequence[int], spare: Sequence[int]) -> str:
    """The file as delivered, but for addresses, folders and TLS.

    Args:
        folder: in the place of /tmp.
        port: where it listens for clients, without TLS.
        webs: ports of two web processes.
        spare: two ports, of the server that redirects and of the health check.
    """
    text = CONFIGURATION.read_text(encoding="utf-8")
    changes = {
        "server web1:8000": f"server 127.0.0.1:{webs[0]}",
        "server web2:8000": f"server 127.0.0.1:{webs[1]}",
        "listen 8443 ssl;": f"listen 127.0.0.1:{port};",
        "listen 8080;": f"listen 127.0.0.1:{spare[0]};",
        "listen 127.0.0.1:8081;": f"listen 127.0.0.1:{spare[1]};",
        "ssl_certificate /run/secrets/tls_certificate;": "",
        "ssl_certificate_key /run/secrets/tls_key;": "",
        "/tmp/": f"{folder}/",
        "/dev/stdout": f"{folder}/access.log",
        "worker_processes auto;": "worker_processes 1;",
    }
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


class Balancer:
    """Always ``stop()`` it. ``address``: what clients ask."""

    def __init__(self, folder: Path, port: int, webs: Sequence[int], spare: Sequence[int]) -> None:
        folder.mkdir()
        self.address = f"http://127.0.0.1:{port}"
        self.folder = folder
        (folder / "nginx.conf").write_text(adapted(folder, port, webs, spare), encoding="utf-8")
        assert NGINX is not None
        # Of a root's nginx the worker is somebody else, who may not write into the folder.
        options = "daemon off; user root;" if folder.owner() == "root" else "daemon off;"
        with (folder / "output.txt").open("wb") as output:
            self._process = subprocess.Popen(
                [NGINX, "-e", "stderr", "-c", str(folder / "nginx.conf"), "-g", options],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + 20
        while not _listens(port):
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def said(self) -> str:
        """Its errors."""
        return (self.folder / "output.txt").read_text(errors="replace")

    def answered_by(self, web: int) -> int:
        """How many calls this web process has answered."""
        lines = (self.folder / "access.log").read_text().splitlines()
        return sum(line.endswith(f"127.0.0.1:{web}") for line in lines)

    def stop(self) -> None:
        """Returns when it has ended."""
        self._process.terminate()
        self._process.wait(20)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
