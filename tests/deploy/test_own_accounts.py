"""Each process of compose and of Kubernetes gets its own account, and no other one."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import redis
import yaml
from django.core.management import CommandError, call_command

from crawlyard.accounts import DAEMONS
from tests.deploy.compose_files import copy_of_deploy, init, services
from tests.deploy.servers import printed
from tests.deploy.test_kubernetes import KUBERNETES, SCHEMA, WORKLOADS, pod

FILES = ("compose.yaml", "compose.stores.yaml", "compose.accounts.yaml")
ACCOUNTS = {"broker_url", "database_url", "redis_url"}
OBJECTS = {"objects_access_key", "objects_secret_key"}
SHARED = {
    "broker_url": "amqp://crawlyard:everybody@rabbitmq:5672/crawlyard",
    "database_url": "postgresql://crawlyard:owner@postgres:5432/crawlyard",
    "redis_url": "redis://crawlyard:all-keys@redis:6379/0",
    "seeds_url": "postgresql://crawlyard_stores:x@postgres:5432/crawlyard_stores",
    "secret_key": "a key",
}


def make(source: Path, target: Path) -> None:
    """What accounts.sh does first."""
    passwords = str(target.with_name("passwords"))
    options = ("--from", str(source), "--into", str(target), "--passwords", passwords)
    call_command("accounts", "files", *options)


def check(daemon: str, folder: Path, environment: dict[str, str], mount: str) -> None:
    """``folder`` is what it mounts: all its settings name a file there, and none is another's."""
    found = {path.name: path.read_text() for path in folder.iterdir()}
    named = {
        Path(value).name
        for name, value in environment.items()
        if name.endswith("_FILE") and value.startswith(mount)
    }
    assert named == found.keys(), daemon
    rights = DAEMONS[daemon]
    has = {"broker_url": True, "database_url": rights.database, "redis_url": bool(rights.redis)}
    assert {name for name in ACCOUNTS if has[name]} == found.keys() & ACCOUNTS, daemon
    for name in found.keys() & ACCOUNTS:
        assert urlsplit(found[name]).username == f"crawlyard_{daemon}"
    assert rights.objects or not found.keys() & OBJECTS, daemon
    if not rights.platform:
        assert found.keys() == {"broker_url"}


@pytest.mark.skipif(
    shutil.which("docker-compose") is None,
    reason="no docker-compose on PATH (apt-get install docker-compose)",
)
@pytest.mark.docker
def test_every_service_of_compose_has_its_own(tmp_path: Path) -> None:
    folder = copy_of_deploy(tmp_path)
    secrets = folder / "secrets"
    make(secrets / "platform", secrets / "accounts")
    found = services(folder, *(word for name in FILES for word in ("-f", name)))
    given: dict[str, str] = {}
    for name, one in found.items():
        # Of ours: stores and nginx have no folder.
        mounts = [v.split(":") for v in one.get("volumes", []) if ":/run/secrets" in v]
        for source, target, *mode in mounts:
            assert (target, mode) == ("/run/secrets", ["ro"]), name
            given[name] = source
    assert given.pop("migrate") == str(secrets / "platform")
    owned = {name: Path(source).relative_to(secrets / "accounts") for name, source in given.items()}
    # Two processes, one kind of daemon; the server of objects has what the center signs with.
    same = {"web1": "web", "web2": "web", "objects": "center"}
    kinds = {name: same.get(name, name) for name in owned}
    assert {name: str(path) for name, path in owned.items()} == kinds
    assert set(kinds.values()) == set(DAEMONS) == {p.name for p in (secrets / "accounts").iterdir()}
    for name, daemon in kinds.items():
        environment = {key: value or "" for key, value in found[name]["environment"].items()}
        check(daemon, Path(given[name]), environment, "/run/secrets/")
        assert not found[name].get("secrets"), name
    # An owner's password is in none of them.
    owner = urlsplit((secrets / "platform" / "database_url").read_text().strip()).password
    assert owner
    files = [path.read_text() for path in (secrets / "accounts").rglob("*_url")]
    assert [text for text in files if owner in text] == []


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on PATH")
def test_every_workload_of_kubernetes_has_its_own(tmp_path: Path) -> None:
    shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
    mine = tmp_path / "mine"
    mine.mkdir()
    content = {
        "resources": ["../kubernetes/base"],
        "components": ["../kubernetes/components/accounts"],
    }
    (mine / "kustomization.yaml").write_text(json.dumps(content))
    done = subprocess.run(
        ["kubectl", "kustomize", str(mine)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    built = [one for one in yaml.safe_load_all(done.stdout) if one]
    settings: dict[str, str] = next(one["data"] for one in built if one["kind"] == "ConfigMap")
    shared = tmp_path / "shared"
    shared.mkdir()
    named = {Path(value).name for name, value in settings.items() if name.endswith("_FILE")}
    for file in named | OBJECTS:
        (shared / file).write_text(SHARED.get(file, f"mine, {file}"))
    make(shared, tmp_path / "accounts")
    seen = set()
    for one in built:
        if one["kind"] not in WORKLOADS:
            continue
        name = one["metadata"]["name"]
        jsonschema.Draft202012Validator(SCHEMA).validate({**one, "metadata": {"name": name}})
        mounted = [v["secret"]["secretName"] for v in pod(one)["volumes"] if v["name"] == "secrets"]
        if name == "migrate":
            assert mounted == ["crawlyard"]
            continue
        seen.add(name)
        assert mounted == [f"crawlyard-{name}"]
        container = pod(one)["containers"][0]
        own = {each["name"]: each.get("value", "") for each in container.get("env", [])}
        environment = {**(settings if "envFrom" in container else {}), **own}
        check(name, tmp_path / "accounts" / name, environment, "/secrets/")
    assert seen == set(DAEMONS)


def test_a_store_with_the_account_of_the_owner_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for name, value in SHARED.items():
        (shared / name).write_text(value)
    make(shared, tmp_path / "accounts")
    # What is given no more goes.
    (tmp_path / "accounts" / "agent" / "database_url").write_text("of yesterday")
    make(shared, tmp_path / "accounts")
    assert [path.name for path in (tmp_path / "accounts" / "agent").iterdir()] == ["broker_url"]
    assert (tmp_path / "accounts" / "agent" / "broker_url").stat().st_mode & 0o077 == 0
    (shared / "seeds_url").write_text(SHARED["database_url"])
    with pytest.raises(CommandError, match="seeds_url is the address of database_url"):
        make(shared, tmp_path / "others")
    assert not (tmp_path / "others").exists()


def test_init_takes_secrets_along_that_lay_in_one_folder(tmp_path: Path) -> None:
    folder = copy_of_deploy(tmp_path)
    secrets = folder / "secrets"
    before: dict[str, Any] = {}
    for path in [*(secrets / "platform").iterdir(), *(secrets / "management").iterdir()]:
        before[path.name] = path.read_bytes()
        path.rename(secrets / path.name)
    for name in ("seeds_url", "records_url"):
        (secrets / name).unlink()
        before[name] = before["database_url"]
    init(folder)
    after = {path.name: path.read_bytes() for path in (secrets / "platform").iterdir()}
    management = (secrets / "management" / "broker_management_url").read_bytes()
    assert after | {"broker_management_url": management} == before


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server on PATH")
def test_redis_starts_with_the_rules(tmp_path: Path) -> None:
    """It refuses the whole file for one word that its version does not know."""
    folder = copy_of_deploy(tmp_path)
    rules = (folder / "secrets" / "redis_acl").read_text()
    own = printed("redis", tmp_path / "passwords")
    (tmp_path / "users.acl").write_text(rules + own)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    server = subprocess.Popen(
        ["redis-server", *options, "--aclfile", str(tmp_path / "users.acl")],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        password = urlsplit((folder / "secrets" / "platform" / "redis_url").read_text()).password
        users = {"crawlyard": password}
        for name in (name for name, rights in DAEMONS.items() if rights.redis):
            users[f"crawlyard_{name}"] = (tmp_path / "passwords" / name).read_text()
        for name, secret in users.items():
            client = redis.Redis(port=port, username=name, password=secret)
            deadline = time.monotonic() + 10
            # The client names itself and its library, which versions before 7.2 do not know.
            while True:
                try:
                    assert client.ping()
                    break
                except redis.exceptions.ConnectionError:
                    assert server.poll() is None, server.communicate()[0]
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            client.client_setname("a-daemon")
            client.close()
    finally:
        server.terminate()
        server.communicate()
