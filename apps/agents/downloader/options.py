"""Identity and options of an agent, from arguments and the environment."""

from __future__ import annotations

import argparse
import importlib.metadata
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from apps.agents.downloader.fetchers import FetchOptions, read_fetch_options
from yardkit.env import Env, EnvError
from yardkit.names import AGENT_ID

MAX_NAME_CHARACTERS: Final = 100


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """Identity of this agent. ``incarnation`` differs for each start of the process."""

    agent: str
    name: str
    labels: dict[str, str] = field(default_factory=dict)
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex)
    version: str = ""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Limits and delays; times in seconds.

    ``prefetch``: in commands of up to 50 requests each. ``publish_attempts``: attempts to publish
    an answer before it is dropped. ``allocations``: folder where allocations are kept for the next
    start; None keeps none. ``pages``: folder of kept pages that wait for their upload, at most
    ``pages_bytes``; None keeps none.
    """

    prefetch: int = 100
    publish_attempts: int = 5
    idle_seconds: float = 600.0
    stop_seconds: float = 2.0
    first_delay_seconds: float = 0.5
    longest_delay_seconds: float = 15.0
    max_pending_bytes: int = 64 * 1024 * 1024
    allocations: Path | None = None
    pages: Path | None = None
    pages_bytes: int = 1024 * 1024 * 1024
    fetching: FetchOptions = field(default_factory=FetchOptions)


def read_options(arguments: Sequence[str], env: Env) -> tuple[str, AgentIdentity, AgentOptions]:
    """Return (broker URL, identity, options). Raises ``EnvError``; ``SystemExit`` for bad
    arguments.
    """
    given = _parser().parse_args(arguments)
    data = env.path("CRAWLYARD_DATA", "data")
    broker_url = env.secret("BROKER_URL", f"sqlite:///{data / 'broker.sqlite3'}")
    name = given.name or env.str("AGENT_NAME", "")
    agent = given.id or env.str("AGENT_ID", "")
    labels = given.labels if given.labels is not None else env.str("AGENT_LABELS", "")
    identity = AgentIdentity(
        agent=_agent_id(agent, name, data),
        name=_checked_name(name or socket.gethostname()),
        labels=parse_labels(labels),
        version=_version(),
    )
    # An agent with neither name nor id has another id after a restart: its files would be
    # useless.
    keeps = bool(name or agent)
    options = AgentOptions(
        publish_attempts=env.int("AGENT_PUBLISH_ATTEMPTS", 5, minimum=1, maximum=1000),
        allocations=data / "agents" / identity.agent / "downloaders" if keeps else None,
        pages=data / "agents" / "pages" / identity.agent,
        pages_bytes=env.int("AGENT_PAGES_BYTES", 1024 * 1024 * 1024, minimum=0),
        fetching=read_fetch_options(env, data, replay=given.replay, missing=given.replay_missing),
    )
    return broker_url, identity, options


def parse_labels(text: str) -> dict[str, str]:
    """Parse "zone=cn-north,disk=ssd". Raises ``EnvError``."""
    labels: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = part.partition("=")
        if not separator or not key.strip():
            raise EnvError(
                "AGENT_LABELS", f"{part[:60]!r} is no label", "write key=value,key=value"
            )
        labels[key.strip()] = value.strip()
    return labels


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m apps.agents.downloader",
        description="Download pages for runs, on commands of the center.",
    )
    parser.add_argument(
        "--id",
        default="",
        help="Id of this agent, unique among all (AGENT_ID). Without one, an agent with a name"
        " keeps the id it made up at its first start, one without a name makes up a new one.",
    )
    parser.add_argument(
        "--name", default="", help="Name shown to people (AGENT_NAME); the host's by default."
    )
    parser.add_argument(
        "--labels", default=None, metavar="K=V,K=V", help="What is special here (AGENT_LABELS)."
    )
    parser.add_argument(
        "--replay",
        default="",
        metavar="PATH",
        help="Answer from a recording instead of the network (AGENT_REPLAY): a WARC or HAR file,"
        " a folder with such files, or a folder mapped to host names.",
    )
    parser.add_argument(
        "--replay-missing",
        default="",
        choices=("fail", "fetch"),
        help="What happens to requests that are not recorded (AGENT_REPLAY_MISSING).",
    )
    return parser


def _agent_id(agent: str, name: str, data: Path) -> str:
    if agent:
        if not AGENT_ID.fullmatch(agent):
            raise EnvError(
                "AGENT_ID",
                f"{agent[:80]!r} is no id",
                "use up to 64 letters, digits, dots, dashes and underscores",
            )
        return agent
    return _kept_id(data / "agents" / f"{quote(name, safe='')}.id") if name else uuid.uuid4().hex


def _kept_id(path: Path) -> str:
    """Return the id of an earlier start under this name, so that its queue is used again."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with path.open("x", encoding="ascii") as file:
                file.write(uuid.uuid4().hex)
        except FileExistsError:
            pass
        kept = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise EnvError(
            "CRAWLYARD_DATA",
            f"cannot keep the agent's id in {path} ({error.strerror or error})",
            "name a folder this user may write to, or set AGENT_ID",
        ) from error
    if not AGENT_ID.fullmatch(kept):
        raise EnvError("AGENT_ID", f"{path} holds no id", "delete the file, or set AGENT_ID")
    return kept


def _checked_name(name: str) -> str:
    if len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        raise EnvError(
            "AGENT_NAME",
            f"{name[:40]!r} is too long or cannot be printed",
            f"use up to {MAX_NAME_CHARACTERS} characters",
        )
    return name


def _version() -> str:
    try:
        return importlib.metadata.version("crawlyard")
    except importlib.metadata.PackageNotFoundError:
        return ""
