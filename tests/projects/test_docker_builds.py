"""Builds by a real Docker Engine from a real git server, without a database."""

from __future__ import annotations

import io
import random
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from apps.projects.engine.builder import (
    BuildControl,
    BuildLog,
    BuildPlan,
    BuildStopped,
    BuiltImage,
    build_image,
)
from apps.projects.engine.builder.control import StopReason
from apps.projects.engine.builder.engine import BuildEngine
from apps.projects.engine.builder.plan import EngineOptions
from apps.projects.engine.git import GitRemote
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.engine.tags import ImageName
from apps.projects.reasons import text_of
from tests.plugins.git_server import GitServer, Repository
from yardkit.protocol import LogBatch

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

SOCKET = "unix:///var/run/docker.sock"
TAG = "prod/news/1.0"
PATIENCE_SECONDS = 120.0


class Yard:
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
        made = self.git_server.make_repository(f"builds-{random.randrange(10**9)}")
        made.commit({"Dockerfile": self.dockerfile(dockerfile), **files})
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
def yard(
    tmp_path: Path, git_server: GitServer, docker_engine: docker.DockerClient, base_image: str
) -> Iterator[Yard]:
    made = Yard(tmp_path, git_server, docker_engine, base_image)
    yield made
    for digest, _build in made.engine.nameless():
        made.engine.remove(digest)
    made.engine.close()
    assert made.containers() == []


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.covers("S1.4")
def test_a_tag_becomes_an_image(yard: Yard) -> None:
    repository = yard.repository(
        "ARG GREETING\nCOPY . /app\nRUN echo $GREETING > /greeting && ls -a /app",
        **{"main.py": "print(1)\n", "notes.md": "no", ".dockerignore": "*.md\n"},
    )
    built = yard.build(repository, arguments={"GREETING": "good day"})
    assert yard.steps == ["clone", "prepare", "build", "check", "store"]
    assert yard.commits == [repository.head()] == [built.commit]
    assert built.digest.startswith("sha256:")
    assert built.size_bytes > 1_000_000
    assert built.labels["crawlyard.version"] == "1.0"
    assert built.labels["crawlyard.build"] == "1"
    said = yard.client.containers.run(
        built.digest, ["sh", "-c", "cat /greeting; ls -A /app"], network_mode="none", remove=True
    )
    # Neither our Dockerfile nor what .dockerignore names is in the image.
    assert said.decode().split() == ["good", "day", ".dockerignore", "Dockerfile", "main.py"]
    text = "\n".join(yard.lines)
    assert f"commit {repository.head()}" in text
    assert "Step 1/" in text
    assert "main.py" in text
    assert yard.git_server.password not in text


def test_the_projects_own_script_builds(yard: Yard) -> None:
    repository = yard.repository("RUN false")
    built = yard.build(repository, script=yard.dockerfile("RUN echo from the script > /from"))
    found = yard.client.containers.run(
        built.digest, ["cat", "/from"], network_mode="none", remove=True
    )
    assert found == b"from the script\n"


def test_layers_are_reused_unless_asked_otherwise(yard: Yard) -> None:
    repository = yard.repository("RUN head -c 8 /dev/urandom > /random")

    def random_of(built: BuiltImage) -> bytes:
        # The file itself: the output of a container that ends at once may not be there yet.
        container = yard.client.containers.create(built.digest, ["/random"], network_mode="none")
        try:
            stream, _about = container.get_archive("/random")
            with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
                return archive.extractfile("random").read()  # type: ignore[union-attr]
        finally:
            container.remove()

    first, second = yard.build(repository), yard.build(repository)
    assert random_of(first) == random_of(second)
    # Each build is an image of its own nevertheless.
    assert first.digest != second.digest
    assert random_of(yard.build(repository, no_cache=True)) != random_of(first)


@pytest.mark.parametrize(
    ("dockerfile", "code", "words"),
    [
        (
            "# why\nRUN echo before && exit 3",
            "build_line_failed",
            "Line 4 of the Dockerfile, RUN echo before && exit 3, failed",
        ),
        ("COPY nothing /x", "build_line_failed", "Line 3 of the Dockerfile, COPY nothing"),
        ("FROM no.such.registry.invalid/image:1", "build_line_failed", "FROM no.such.registry"),
        ("NONSENSE here", "build_refused", "unknown instruction: NONSENSE"),
    ],
)
def test_a_failure_says_which_step_it_was(
    dockerfile: str, code: str, words: str, yard: Yard
) -> None:
    failure = yard.failure(yard.repository(dockerfile))
    assert failure.code == code
    assert words in text_of(failure)
    assert yard.steps[-1] == "build"


@pytest.mark.covers("S1.4")
def test_what_a_base_image_makes_others_do_is_judged_and_what_was_judged_is_built_on(
    yard: Yard,
) -> None:
    """The engine would give it the files of every image, whatever project they belong to."""

    def maker_says(*lines: str) -> str:
        text = "\n".join((f"FROM {yard.base}", "LABEL crawlyard.test=1", *lines)).encode()
        made, _said = yard.client.images.build(fileobj=io.BytesIO(text), tag=name)
        return str(made.id)

    name = f"crawlyard-test-maker-{random.randrange(10**9)}:1"
    try:
        harmless = maker_says("ONBUILD RUN touch /triggered")
        repository = yard.repository("")
        script = f"FROM {name} AS first\nRUN true\nFROM first\nRUN test -e /triggered"
        yard.build(repository, script=script)
        assert f"{name} is {harmless}" in yard.lines
        maker_says(f"ONBUILD COPY --from={yard.base} /etc/passwd /stolen")
        with pytest.raises(ProjectInputError) as caught:
            yard.build(repository, script=script)
        assert caught.value.code == "dockerfile_trigger"
        assert len(yard.built) == 1
    finally:
        yard.client.images.remove(name, force=True)


def stopped_while_silent(yard: Yard, stop: Callable[[BuildControl], None]) -> BaseException:
    """What a build ends with that hangs, and is stopped once it does."""
    control = BuildControl(limit_seconds=3600)
    ended: list[BaseException] = []

    def work() -> None:
        try:
            yard.build(yard.repository("RUN echo begun && sleep 3600"), control=control)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            ended.append(error)

    thread = in_thread(work)
    yard.until_heard("begun")
    assert len(yard.containers()) == 1
    stop(control)
    thread.join(PATIENCE_SECONDS)
    assert yard.containers() == []
    assert yard.built == []
    return ended[0]


@pytest.mark.covers("S1.4")
def test_one_that_hangs_ends_at_its_time_limit(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not a short limit: on a slow machine the time could be over before it hangs.
    failure = stopped_while_silent(
        yard, lambda control: monkeypatch.setattr(control, "_deadline", 0.0)
    )
    assert isinstance(failure, ProjectInputError)
    assert failure.code == "build_time_limit"
    assert "time limit" in text_of(failure)


def test_a_cancelled_one_ends_while_it_is_silent(yard: Yard) -> None:
    assert isinstance(
        stopped_while_silent(yard, lambda one: one.stop(StopReason.CANCELLED)), BuildStopped
    )


def test_one_that_fills_the_disk_is_stopped_on_its_way(yard: Yard) -> None:
    fills = (
        # It says what the builder would say, and labels itself as nobody's: no use.
        "LABEL crawlyard.layer=nobody\n"
        "RUN echo ' ---> Running in 000000000000'; while true; do "
        "dd if=/dev/zero of=/fill bs=1M count=50 oflag=append conv=notrunc 2>/dev/null || "
        "cat /dev/zero | head -c 50000000 >> /fill; sleep 0.2; done"
    )
    failure = yard.failure(yard.repository(fills), max_image_bytes=400 * 1024**2)
    assert failure.code == "build_too_large"
    assert int(str(failure.params["size"])) < 4 * 1024**3


def test_an_image_over_the_limit_is_removed(yard: Yard) -> None:
    repository = yard.repository("COPY blob /blob", blob=b"x" * 1000)
    size = yard.client.images.get(yard.base).attrs["Size"]
    failure = yard.failure(repository, max_image_bytes=size - 1)
    assert failure.code in ("image_too_large", "build_too_large")
    assert [each for each in yard.engine.nameless() if each[1]] == []


def test_memory_and_network_of_a_step_are_limited(yard: Yard) -> None:
    eats = yard.repository(
        'RUN python3 -c "x = bytearray(600 * 1024 * 1024); print(sum(x[::4096]))"'
    )
    assert yard.failure(eats).code == "build_line_failed"
    inside = yard.repository("RUN cat /proc/net/dev && ! grep -q eth0 /proc/net/dev")
    yard.build(inside)


def test_an_endless_log_ends_with_the_limit(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.projects.engine.builder.logs.MAX_LINES", 100)
    repository = yard.repository("RUN i=0; while [ $i -lt 5000 ]; do echo $i; i=$((i+1)); done")
    yard.build(repository)
    assert 100 <= len(yard.lines) < 200
    assert yard.lines[-1].startswith("sha256:")


def test_an_engine_that_is_away_is_waited_for_and_then_named(yard: Yard) -> None:
    away = {"url": "unix:///tmp/no-such-engine.sock", "wait_seconds": 0.5}
    failure = yard.failure(yard.repository("RUN true"), engine=away)
    assert failure.code == "engine_away"
    assert "no-such-engine" in text_of(failure)
    assert any("is away; waiting" in line for line in yard.lines)


def test_a_moved_tag_is_built_and_said(yard: Yard) -> None:
    yard.build(yard.repository("RUN true"), expected_commit="0" * 40)
    assert any("has been moved" in line for line in yard.lines)


def test_a_copied_link_brings_nothing_of_this_machine(yard: Yard) -> None:
    repository = yard.git_server.make_repository(f"links-{random.randrange(10**9)}")
    (repository.work / "etc").symlink_to("/etc")
    repository.commit({"Dockerfile": yard.dockerfile("COPY etc/hostname /found")})
    repository.tag(TAG)
    failure = yard.failure(repository)
    assert failure.code == "build_line_failed"


def test_failed_builds_leave_only_what_can_be_found_by_its_label(yard: Yard) -> None:
    before = set(yard.client.api.images(all=True, quiet=True))
    yard.failure(yard.repository("RUN echo one > /one\nRUN false"))
    left = yard.engine.nameless()
    assert {build for _digest, build in left} == {""}
    for digest, _build in left:
        yard.engine.remove(digest)
    deadline = time.monotonic() + 10
    while set(yard.client.api.images(all=True, quiet=True)) - before:
        assert time.monotonic() < deadline
        time.sleep(0.1)
