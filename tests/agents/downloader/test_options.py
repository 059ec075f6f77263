"""Who an agent is, from arguments and the environment."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from apps.agents.downloader.options import parse_labels, read_options
from yardkit.env import Env, EnvError


def test_everything_by_environment(tmp_path: Path) -> None:
    url, identity, options = read_options(
        [],
        Env(
            {
                "BROKER_URL": "amqp://guest:guest@127.0.0.1/",
                "AGENT_ID": "agent-9",
                "AGENT_NAME": "北京 9",
                "AGENT_LABELS": "zone=cn-north, disk=ssd",
                "AGENT_PUBLISH_ATTEMPTS": "7",
            }
        ),
    )
    assert url == "amqp://guest:guest@127.0.0.1/"
    assert (identity.agent, identity.name) == ("agent-9", "北京 9")
    assert identity.labels == {"zone": "cn-north", "disk": "ssd"}
    assert len(identity.incarnation) == 32
    assert options.publish_attempts == 7


def test_arguments_win() -> None:
    _, identity, _ = read_options(
        ["--id", "a", "--name", "b", "--labels", "c=d"],
        Env({"AGENT_ID": "x", "AGENT_NAME": "y", "AGENT_LABELS": "z=z"}),
    )
    assert (identity.agent, identity.name, identity.labels) == ("a", "b", {"c": "d"})


@pytest.mark.covers("S1.33")
def test_defaults(tmp_path: Path) -> None:
    url, first, options = read_options([], Env({"CRAWLYARD_DATA": str(tmp_path)}))
    _, second, _ = read_options([], Env({"CRAWLYARD_DATA": str(tmp_path)}))
    assert url == f"sqlite:///{tmp_path}/broker.sqlite3"
    assert first.name == socket.gethostname()
    assert len(first.agent) == 32
    assert "-" not in first.agent
    assert first.agent != second.agent
    assert not (tmp_path / "agents").exists()
    assert (options.publish_attempts, options.idle_seconds) == (5, 600.0)
    assert (options.fetching.proxy_wait_seconds, options.fetching.proxies) == (60.0, ())


@pytest.mark.covers("S1.49")
@pytest.mark.parametrize(
    ("arguments", "keeps"), [(["--id", "a.b"], True), (["--name", "n"], True), ([], False)]
)
def test_only_an_agent_that_comes_back_keeps_its_allocations(
    tmp_path: Path, arguments: list[str], keeps: bool
) -> None:
    _, identity, options = read_options(arguments, Env({"CRAWLYARD_DATA": str(tmp_path)}))
    folder = tmp_path / "agents" / identity.agent / "downloaders"
    assert options.allocations == (folder if keeps else None)


def test_a_named_agent_keeps_its_id(tmp_path: Path) -> None:
    env = Env({"CRAWLYARD_DATA": str(tmp_path)})
    _, first, _ = read_options(["--name", "../北京/9"], env)
    _, again, _ = read_options(["--name", "../北京/9"], env)
    _, other, _ = read_options(["--name", "other"], env)
    assert first.agent == again.agent != other.agent
    assert first.incarnation != again.incarnation
    assert len(list((tmp_path / "agents").iterdir())) == 2


def test_a_kept_id_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "a.id").write_bytes(b"\xff\n")
    with pytest.raises(EnvError, match=r"AGENT_ID: .*a\.id holds no id; delete the file"):
        read_options(["--name", "a"], Env({"CRAWLYARD_DATA": str(tmp_path)}))


def test_a_data_folder_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(EnvError, match=r"CRAWLYARD_DATA: cannot keep the agent's id"):
        read_options(["--name", "a"], Env({"CRAWLYARD_DATA": str(file)}))


@pytest.mark.parametrize("agent", ["-a", "a b", "a/b", "x" * 65, "号"])
def test_bad_ids(agent: str) -> None:
    with pytest.raises(EnvError, match=r"AGENT_ID: .* is no id"):
        read_options([], Env({"AGENT_ID": agent}))


@pytest.mark.parametrize("name", ["x" * 101, "a\x1bb"])
def test_bad_names(name: str) -> None:
    with pytest.raises(EnvError, match="AGENT_NAME"):
        read_options(["--id", "a", "--name", name], Env({}))


def test_labels() -> None:
    assert parse_labels("") == {}
    assert parse_labels(" a = b=c ,, d=") == {"a": "b=c", "d": ""}
    for bad in ("a", "=b"):
        with pytest.raises(EnvError, match=r"AGENT_LABELS: .* is no label"):
            parse_labels(bad)
