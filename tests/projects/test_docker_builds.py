"""Builds by a real Docker Engine from a real git server, without a database."""

from __future__ import annotations

import io
import random
import tarfile
import threading
import time
from collections.abc import Callable

import pytest

from apps.projects.engine.builder import BuildControl, BuildStopped, BuiltImage
from apps.projects.engine.builder.control import StopReason
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.reasons import text_of
from tests.projects.docker_builds import PATIENCE_SECONDS, TAG, BuildHarness

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.covers("S1.4")
def test_a_tag_becomes_an_image(harness: BuildHarness) -> None:
    repository = harness.repository(
        "ARG GREETING\nCOPY . /app\nRUN echo $GREETING > /greeting && ls -a /app",
        **{"main.py": "print(1)\n", "notes.md": "no", ".dockerignore": "*.md\n"},
    )
    built = harness.build(repository, arguments={"GREETING": "good day"})
    assert harness.steps == ["clone", "prepare", "build", "check", "describe", "store"]
    assert harness.commits == [repository.head()] == [built.commit]
    assert built.digest.startswith("sha256:")
    assert built.size_bytes > 1_000_000
    assert built.labels["crawlyard.version"] == "1.0"
    assert built.labels["crawlyard.build"] == "1"
    said = harness.client.containers.run(
        built.digest, ["sh", "-c", "cat /greeting; ls -A /app"], network_mode="none", remove=True
    )
    # Neither our Dockerfile nor what .dockerignore names is in the image.
    assert said.decode().split() == ["good", "day", ".dockerignore", "Dockerfile", "main.py"]
    text = "\n".join(harness.lines)
    assert f"commit {repository.head()}" in text
    assert "Step 1/" in text
    assert "main.py" in text
    assert harness.git_server.password not in text


def test_the_projects_own_script_builds(harness: BuildHarness) -> None:
    repository = harness.repository("RUN false")
    built = harness.build(repository, script=harness.dockerfile("RUN echo from the script > /from"))
    found = harness.client.containers.run(
        built.digest, ["cat", "/from"], network_mode="none", remove=True
    )
    assert found == b"from the script\n"


def test_layers_are_reused_unless_asked_otherwise(harness: BuildHarness) -> None:
    repository = harness.repository("RUN head -c 8 /dev/urandom > /random")

    def random_of(built: BuiltImage) -> bytes:
        # The file itself: the output of a container that ends at once may not be there yet.
        container = harness.client.containers.create(built.digest, ["/random"], network_mode="none")
        try:
            stream, _about = container.get_archive("/random")
            with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
                return archive.extractfile("random").read()  # type: ignore[union-attr]
        finally:
            container.remove()

    first, second = harness.build(repository), harness.build(repository)
    assert random_of(first) == random_of(second)
    # Each build is an image of its own nevertheless.
    assert first.digest != second.digest
    assert random_of(harness.build(repository, no_cache=True)) != random_of(first)


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
    dockerfile: str, code: str, words: str, harness: BuildHarness
) -> None:
    failure = harness.failure(harness.repository(dockerfile))
    assert failure.code == code
    assert words in text_of(failure)
    assert harness.steps[-1] == "build"


@pytest.mark.covers("S1.4")
def test_what_a_base_image_makes_others_do_is_judged_and_what_was_judged_is_built_on(
    harness: BuildHarness,
) -> None:
    """The engine would give it the files of every image, whatever project they belong to."""

    def maker_says(*lines: str) -> str:
        text = "\n".join((f"FROM {harness.base}", "LABEL crawlyard.test=1", *lines)).encode()
        made, _said = harness.client.images.build(fileobj=io.BytesIO(text), tag=name)
        return str(made.id)

    name = f"crawlyard-test-maker-{random.randrange(10**9)}:1"
    try:
        harmless = maker_says("ONBUILD RUN touch /triggered")
        repository = harness.repository("")
        script = f"FROM {name} AS first\nRUN true\nFROM first\nRUN test -e /triggered"
        harness.build(repository, script=script)
        assert f"{name} is {harmless}" in harness.lines
        maker_says(f"ONBUILD COPY --from={harness.base} /etc/passwd /stolen")
        with pytest.raises(ProjectInputError) as caught:
            harness.build(repository, script=script)
        assert caught.value.code == "dockerfile_trigger"
        assert len(harness.built) == 1
    finally:
        harness.client.images.remove(name, force=True)


def stopped_while_silent(
    harness: BuildHarness, stop: Callable[[BuildControl], None]
) -> BaseException:
    """What a build ends with that hangs, and is stopped once it does."""
    control = BuildControl(limit_seconds=3600)
    ended: list[BaseException] = []

    def work() -> None:
        try:
            harness.build(harness.repository("RUN echo begun && sleep 3600"), control=control)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            ended.append(error)

    thread = in_thread(work)
    harness.until_heard("begun")
    assert len(harness.containers()) == 1
    stop(control)
    thread.join(PATIENCE_SECONDS)
    assert harness.containers() == []
    assert harness.built == []
    return ended[0]


@pytest.mark.covers("S1.4")
def test_one_that_hangs_ends_at_its_time_limit(
    harness: BuildHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not a short limit: on a slow machine the time could be over before it hangs.
    failure = stopped_while_silent(
        harness, lambda control: monkeypatch.setattr(control, "_deadline", 0.0)
    )
    assert isinstance(failure, ProjectInputError)
    assert failure.code == "build_time_limit"
    assert "time limit" in text_of(failure)


def test_a_cancelled_one_ends_while_it_is_silent(harness: BuildHarness) -> None:
    assert isinstance(
        stopped_while_silent(harness, lambda one: one.stop(StopReason.CANCELLED)), BuildStopped
    )


def test_one_that_fills_the_disk_is_stopped_on_its_way(harness: BuildHarness) -> None:
    fills = (
        # It says what the builder would say, and labels itself as nobody's: no use.
        "LABEL crawlyard.layer=nobody\n"
        "RUN echo ' ---> Running in 000000000000'; while true; do "
        "dd if=/dev/zero of=/fill bs=1M count=50 oflag=append conv=notrunc 2>/dev/null || "
        "cat /dev/zero | head -c 50000000 >> /fill; sleep 0.2; done"
    )
    failure = harness.failure(harness.repository(fills), max_image_bytes=400 * 1024**2)
    assert failure.code == "build_too_large"
    assert int(str(failure.params["size"])) < 4 * 1024**3


def test_an_image_over_the_limit_is_removed(harness: BuildHarness) -> None:
    repository = harness.repository("COPY blob /blob", blob=b"x" * 1000)
    size = harness.client.images.get(harness.base).attrs["Size"]
    failure = harness.failure(repository, max_image_bytes=size - 1)
    assert failure.code in ("image_too_large", "build_too_large")
    assert [each for each in harness.engine.nameless() if each[1]] == []


def test_memory_and_network_of_a_step_are_limited(harness: BuildHarness) -> None:
    eats = harness.repository(
        'RUN python3 -c "x = bytearray(600 * 1024 * 1024); print(sum(x[::4096]))"'
    )
    assert harness.failure(eats).code == "build_line_failed"
    inside = harness.repository("RUN cat /proc/net/dev && ! grep -q eth0 /proc/net/dev")
    harness.build(inside)


def test_an_endless_log_ends_with_the_limit(
    harness: BuildHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.projects.engine.builder.logs.MAX_LINES", 100)
    repository = harness.repository("RUN i=0; while [ $i -lt 5000 ]; do echo $i; i=$((i+1)); done")
    harness.build(repository)
    assert 100 <= len(harness.lines) < 200
    assert harness.lines[-2].startswith("sha256:")


def test_an_engine_that_is_away_is_waited_for_and_then_named(harness: BuildHarness) -> None:
    away = {"url": "unix:///tmp/no-such-engine.sock", "wait_seconds": 0.5}
    failure = harness.failure(harness.repository("RUN true"), engine=away)
    assert failure.code == "engine_away"
    assert "no-such-engine" in text_of(failure)
    assert any("is away; waiting" in line for line in harness.lines)


def test_a_moved_tag_is_built_and_said(harness: BuildHarness) -> None:
    harness.build(harness.repository("RUN true"), expected_commit="0" * 40)
    assert any("has been moved" in line for line in harness.lines)


def test_a_copied_link_brings_nothing_of_this_machine(harness: BuildHarness) -> None:
    repository = harness.git_server.make_repository(f"links-{random.randrange(10**9)}")
    (repository.work / "etc").symlink_to("/etc")
    repository.commit({"Dockerfile": harness.dockerfile("COPY etc/hostname /found")})
    repository.tag(TAG)
    failure = harness.failure(repository)
    assert failure.code == "build_line_failed"


def test_failed_builds_leave_only_what_can_be_found_by_its_label(harness: BuildHarness) -> None:
    before = set(harness.client.api.images(all=True, quiet=True))
    harness.failure(harness.repository("RUN echo one > /one\nRUN false"))
    left = harness.engine.nameless()
    assert {build for _digest, build in left} == {""}
    for digest, _build in left:
        harness.engine.remove(digest)
    deadline = time.monotonic() + 10
    while set(harness.client.api.images(all=True, quiet=True)) - before:
        assert time.monotonic() < deadline
        time.sleep(0.1)
