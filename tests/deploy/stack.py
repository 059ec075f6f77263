"""compose.yaml started here: every service of ours, on the stores of this machine.

The stores listen on the loopback address alone, which containers reach in the machine's own network
only. So services share that one instead of the networks of the file, and the web processes get
ports of their own. All else is as the file says: image, user, rights, limits, secrets, commands,
health checks, who waits for whom.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import docker
from docker.models.containers import Container

from tests.deploy.compose_files import compose, copy_of_deploy, services
from tests.deploy.servers import Accounts

FILE = "stack.json"
FILES = ("-f", "compose.yaml", "-f", "compose.accounts.yaml")
WEBS = ("web1", "web2")
# Often enough that nobody waits for the next one.
CHECK_EVERY = "3s"


class Stack:
    """Always ``end()`` it. Each process has its own account.

    Args:
        accounts: already made at the stores.
        secrets: contents of files in secrets/, such as ``platform/database_url``.
        ports: of the two web processes.
        settings: more of the environment of every service that has the common one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        image: str,
        accounts: Accounts,
        secrets: Mapping[str, str],
        ports: Mapping[str, int],
        **settings: str,
    ) -> None:
        self.name = f"crawlyardtest{os.getpid()}"
        self.address = f"http://127.0.0.1:{ports[WEBS[0]]}"
        self._folder = copy_of_deploy(folder)
        for name, value in secrets.items():
            path = self._folder / "secrets" / name
            path.chmod(0o644)
            path.write_text(value, encoding="utf-8")
        shared = self._folder / "secrets" / "platform"
        accounts.write_secrets(shared, self._folder / "secrets" / "accounts")
        self._image = image
        self._ports = ports
        self._settings = {"ALLOWED_HOSTS": "127.0.0.1,localhost", **settings}
        self.services = self._adapted(services(self._folder, *FILES))
        # One that a compose file declares gets its own volumes; secrets are folders beside it.
        used = {
            str(volume).partition(":")[0]
            for one in self.services.values()
            for volume in one.get("volumes", [])
            if not str(volume).startswith("/")
        }
        content = {
            "version": "3.9",
            "services": self.services,
            "volumes": {name: {} for name in sorted(used)},
        }
        (self._folder / FILE).write_text(json.dumps(content), encoding="utf-8")

    def up(self) -> None:
        """Start all; returns once migrate has ended and the others have been started."""
        done = self._compose("up", "-d", "--no-color", seconds=240)
        assert done.returncode == 0, done.stdout + done.stderr

    def containers(self, engine: docker.DockerClient) -> dict[str, Container]:
        """Those of its services, by name."""
        found = engine.containers.list(
            all=True, filters={"label": f"com.docker.compose.project={self.name}"}
        )
        return {each.labels["com.docker.compose.service"]: each for each in found}

    def until_healthy(self, engine: docker.DockerClient, *, seconds: float) -> dict[str, Container]:
        """Wait until each service that has a check passes it; one that has ended fails at once."""
        deadline = time.monotonic() + seconds
        while True:
            containers = self.containers(engine)
            health = {
                name: each.attrs["State"].get("Health", {}).get("Status", each.status)
                for name, each in containers.items()
                if name != "migrate"
            }
            ill = {name: status for name, status in health.items() if status != "healthy"}
            if not ill:
                return containers
            gone = {name for name in ill if containers[name].attrs["RestartCount"]}
            late = time.monotonic() > deadline
            assert not gone, f"came back: {gone}\n{self.explain(engine, gone)}"
            assert not late, f"{ill}\n{self.explain(engine, ill)}"
            time.sleep(0.5)

    def explain(self, engine: docker.DockerClient, names: Any = ()) -> str:
        """The end of the logs, of these services or of all."""
        return "\n".join(
            f"--- {name}\n{container.logs(tail=40).decode(errors='replace')}"
            for name, container in sorted(self.containers(engine).items())
            if not names or name in names
        )

    def end(self) -> None:
        """Containers and volumes go."""
        self._compose("down", "--volumes", "--timeout", "5", seconds=120)

    def _compose(self, *arguments: str, seconds: float) -> Any:
        return compose(
            self._folder, "-f", FILE, "-p", self.name, *arguments, seconds=seconds
        )  # fmt: skip

    def _adapted(self, found: dict[str, Any]) -> dict[str, Any]:
        # There is no image of nginx without a registry; its file is tested on its own.
        found.pop("nginx")
        for name, one in found.items():
            one.pop("networks", None)
            one["network_mode"] = "host"
            one["image"] = self._image
            # What is a container's own id in networks of the engine.
            one.setdefault("hostname", f"{self.name}-{name}")
            one["labels"] = {"crawlyard.test": "1"}
            if "ALLOWED_HOSTS" in one["environment"]:
                one["environment"].update(self._settings)
            if "interval" in one["healthcheck"]:
                one["healthcheck"]["interval"] = CHECK_EVERY
        runner = found["runner"]
        runner["environment"]["RUN_NETWORK"] = "host"
        for name in WEBS:
            one, port = found[name], self._ports[name]
            one["command"] = ["run_web", "--host", "127.0.0.1", "--port", str(port)]
            test = one["healthcheck"]["test"]
            test[-1] = test[-1].replace(":8000/", f":{port}/")
        return found
