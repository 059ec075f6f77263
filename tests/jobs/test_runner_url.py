"""What ``RUNNER_URL`` may say."""

from __future__ import annotations

import pytest

from apps.jobs.runners.factory import docker_url, runner_kind
from yardkit.env import EnvError

GOOD_URLS = {
    "process://": ("process", ""),
    "docker://": ("docker", "unix:///var/run/docker.sock"),
    "unix:///run/podman.sock": ("docker", "unix:///run/podman.sock"),
    "tcp://engine:2375": ("docker", "tcp://engine:2375"),
    "tcp://[::1]:2375/": ("docker", "tcp://[::1]:2375"),
}


@pytest.mark.parametrize("url", GOOD_URLS)
def test_a_url_names_a_runner(url: str) -> None:
    assert (runner_kind(url), docker_url(url)) == GOOD_URLS[url]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "docker",
        "http://x:1",
        "tcp://host",
        "tcp://:1",
        "unix://host/x",
        "process://x",
        "tcp://h:x",
    ],
)
def test_a_url_that_names_none_is_refused_with_the_setting(url: str) -> None:
    with pytest.raises(EnvError, match="RUNNER_URL"):
        runner_kind(url)
