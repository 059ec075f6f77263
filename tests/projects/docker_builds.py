"""Builds by a real Docker Engine from a real git server, and what they told."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from apps.projects.engine.builder import BuildControl, BuildLog, BuildPlan, BuiltImage, build_image
from apps.projects.engine.builder.engine import BuildEngine
from apps.projects.engine.builder.plan import EngineOptions
from apps.projects.engine.git import GitRemote
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.engine.tags import ImageName
from tests.plugins.git_server import GitServer, Repository
from yardkit.protocol import LogBatch

SOCKET = "unix:///var/run/docker.sock"
TAG = "prod/news/1.0"
PATIENCE_SECONDS = 120.0


class BuildHarness:
    """Runs builds and keeps what they told."""

    def __init__(self, folder: Path, git_server: GitServer, client: Any, base: str) -> None:
        self.folder = folder
        self.git_server = git_server
        self.client = client
        self.base = base
        self.owner = f"test-{random.randrange(10**12)}"
        self.lines: list[str] = []
        self.steps: list[str] = []
        self.commits: list[str] = []
        self.built: list[BuiltImage] = []
        self.heard = threading.Condition()
        self._builds = 0
        self.engine = BuildEngine(EngineOptions(SOCKET, "none", 256 * 1024**2, self.owner))

    # --- what builds tell -----------------------------------------------------------------------

    def enter(self, step: str) -> None:
        self.steps.append(step)

    def commit(self, commit: str) -> None:
        self.commits.append(commit)

    def send(self, batch: LogBatch) -> bool:
        with self.heard:
            self.lines += [line.text for line in batch.lines]
            self.heard.notify_all()
        return True

    def until_heard(self, words: str) -> None:
        with self.heard:
            assert self.heard.wait_for(
                lambda: any(words in line for line in self.lines), PATIENCE_SECONDS
            ), self.lines

    def store(self, built: BuiltImage, engine: BuildEngine) -> None:
        self.built.append(built)

    # --- builds ---------------------------------------------------------------------------------

    def repository(self, dockerfile: str, **files: str | bytes) -> Repository:
        return self.plain_repository({"Dockerfile": self.dockerfile(dockerfile), **files})

    def plain_repository(self, files: dict[str, str | bytes]) -> Repository:
        made = self.git_server.make_repository(f"builds-{random.randrange(10**9)}")
        made.commit(files)
        made.tag(TAG)
        return made

    def dockerfile(self, text: str) -> str:
        return f"FROM {self.base}\nLABEL crawlyard.test=1\n{text}\n"

    def build(
        self, repository: Repository, *, control: BuildControl | None = None, **fields: Any
    ) -> BuiltImage:
        self._builds += 1
        folder = self.folder / str(self._builds)
        folder.mkdir()
        options: dict[str, Any] = {"url": SOCKET, "network": "none", "memory_bytes": 256 * 1024**2}
        options |= fields.pop("engine", {})
        values: dict[str, Any] = {
            "build": self._builds,
            "boot": "b1",
            "remote": GitRemote(
                repository.url,
                self.git_server.username,
                self.git_server.password,
                allowed_networks=["127.0.0.0/8"],
            ),
            "tag": TAG,
            "expected_commit": "",
            "dockerfile": "Dockerfile",
            "script": "",
            "arguments": {},
            "image": ImageName("crawlyard-test/news", "prod-1.0"),
            "labels": {"crawlyard.version": "1.0"},
            "engine": EngineOptions(owner=self.owner, **options),
            "folder": folder,
            "max_image_bytes": 2 * 1024**3,
        }
        log = BuildLog(
            stream="build:1", boot="b1", send=self.send, secrets=[self.git_server.password]
        )
        try:
            build_image(
                BuildPlan(**{**values, **fields}),
                control=control or BuildControl(limit_seconds=PATIENCE_SECONDS),
                log=log,
                progress=self,
                store=self.store,
            )
        finally:
            log.close(5)
        return self.built[-1]

    # --- what is left ---------------------------------------------------------------------------

    def containers(self) -> list[Any]:
        label = f"crawlyard.layer={self.owner}"
        return list(self.client.containers.list(all=True, filters={"label": label}))

    def failure(self, *arguments: Any, **fields: Any) -> ProjectInputError:
        with pytest.raises(ProjectInputError) as caught:
            self.build(*arguments, **fields)
        assert self.containers() == []
        assert self.built == []
        return caught.value


@pytest.fixture
def harness(
    tmp_path: Path, git_server: GitServer, docker_engine: docker.DockerClient, base_image: str
) -> Iterator[BuildHarness]:
    made = BuildHarness(tmp_path, git_server, docker_engine, base_image)
    yield made
    for digest, _build in made.engine.nameless():
        made.engine.remove(digest)
    made.engine.close()
    assert made.containers() == []
