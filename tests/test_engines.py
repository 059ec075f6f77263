"""The parts that tests of builds stand on: base image, git server."""

from __future__ import annotations

import docker
import pytest

from tests.plugins.git_server import GitServer, run_git


@pytest.mark.docker
def test_the_base_image_runs_python_and_pip(
    docker_engine: docker.DockerClient, base_image: str
) -> None:
    script = "import ssl, sqlite3, ctypes, pip; print(ssl.OPENSSL_VERSION)"
    out = docker_engine.containers.run(
        base_image,
        ["sh", "-c", f'python3 -c "{script}" && python -m pip --version'],
        remove=True,
        network_mode="none",
        user="10001:10001",
        labels={"crawlyard.test": "1"},
    )
    assert out.splitlines()[0].startswith(b"OpenSSL")
    assert out.splitlines()[1].startswith(b"pip ")


def test_the_git_server_wants_a_password_and_takes_pushes(git_server: GitServer) -> None:
    repository = git_server.make_repository("engines")
    commit = repository.commit({"spider.py": "print(1)\n"})
    assert repository.tag("live/engines/1.0") == commit
    assert run_git("rev-parse", "live/engines/1.0", folder=repository.bare) == commit
    with pytest.raises(AssertionError, match=r"terminal prompts disabled|could not read"):
        run_git("ls-remote", repository.url, folder=repository.work)
