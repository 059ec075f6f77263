"""Reads the environment variables that the platform sets for a run."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from yardkit.env import Env, EnvError
from yardkit.protocol import DownloaderSettings, Policy

T = TypeVar("T")

RUN = "CRAWLYARD_RUN"
# Limit of AMQP.
_TOPIC_BYTES = 255


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """Parameters of one execution of a run on the platform.

    agents: number wanted; 0 leaves it to the policy.
    arguments: of the job, by name. settings: changes to the spider's ``SpiderSettings``.
    topic: routing key of commands (pause, resume, exit); "" without commands.
    frontier: id of the frontier whose seeds the run may add, lease and finish; 0 for none. pools:
    id of the project whose resources it may lease; 0 for none. keeps_requests: the platform stores
    the rows of ended requests. requests: address of those that the run makes instead of its start.
    """

    run: int
    token: str
    incarnation: str
    broker_url: str
    policy: Policy
    agents: int
    downloader: DownloaderSettings
    arguments: dict[str, Any]
    settings: dict[str, Any]
    topic: str = ""
    frontier: int = 0
    frontier_token: str = ""
    pools: int = 0
    pools_token: str = ""
    keeps_requests: bool = False
    requests: str = ""


def on_platform(environ: Mapping[str, str]) -> bool:
    """Return whether this process was started as a run."""
    return bool(environ.get(RUN, "").strip())


def read_run_dir(environ: Mapping[str, str]) -> Path | None:
    """Return the folder for items and exit state. Raises ``EnvError`` when it is no folder."""
    folder = Env(environ).path("CRAWLYARD_RUN_DIR", None)
    if folder is not None and not folder.is_dir():
        raise EnvError("CRAWLYARD_RUN_DIR", f"{str(folder)!r} is no folder", "make it first")
    return folder


def read_run(environ: Mapping[str, str]) -> RunEnvironment:
    """Read everything else. Raises ``EnvError`` with the variable and the remedy."""
    env = Env(environ)
    frontier = env.int("CRAWLYARD_FRONTIER", 0, minimum=0)
    pools = env.int("CRAWLYARD_POOLS", 0, minimum=0)
    return RunEnvironment(
        run=env.int(RUN, minimum=1),
        token=env.secret("CRAWLYARD_RUN_TOKEN"),
        incarnation=env.str("CRAWLYARD_BOOT", None) or secrets.token_hex(8),
        broker_url=env.url("BROKER_URL", schemes=("sqlite", "amqp", "amqps")),
        policy=Policy(env.str("CRAWLYARD_POLICY", "random", choices=[str(p) for p in Policy])),
        agents=env.int("CRAWLYARD_AGENTS", 0, minimum=0),
        downloader=_json(env, "CRAWLYARD_DOWNLOADER", DownloaderSettings),
        arguments=_json(env, "CRAWLYARD_ARGUMENTS", dict[str, Any]),
        settings=_json(env, "CRAWLYARD_SETTINGS", dict[str, Any]),
        topic=_topic(env),
        frontier=frontier,
        frontier_token=env.secret("CRAWLYARD_FRONTIER_TOKEN") if frontier else "",
        pools=pools,
        pools_token=env.secret("CRAWLYARD_POOLS_TOKEN") if pools else "",
        keeps_requests=env.bool("CRAWLYARD_KEEPS_REQUESTS", False),
        requests=env.str("CRAWLYARD_REQUESTS", ""),
    )


def read_downloader(environ: Mapping[str, str]) -> DownloaderSettings:
    """Read the downloader settings alone, for a run without the platform."""
    return _json(Env(environ), "CRAWLYARD_DOWNLOADER", DownloaderSettings)


def _topic(env: Env) -> str:
    topic = env.str("CRAWLYARD_TOPIC", "")
    # With a wildcard the run would receive the commands of other jobs.
    if len(topic.encode()) > _TOPIC_BYTES or not topic.isprintable() or set(topic) & set("#* "):
        how = "use a name of at most 255 bytes without blanks, # and *"
        raise EnvError("CRAWLYARD_TOPIC", f"{topic[:80]!r} is no topic", how)
    return topic


def _json(env: Env, name: str, kind: type[T]) -> T:
    text = env.str(name, "{}")
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"), type=kind)
    except msgspec.DecodeError as error:
        raise EnvError(name, str(error), 'use a JSON object such as {"key": "value"}') from error
