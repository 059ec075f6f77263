"""Websocket groups, and the events that are relayed to pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apps.agents.events import AGENTS_CHANGED
from apps.joblogs.events import LOG_GREW
from apps.jobs.events import RUN_CHANGED
from apps.queuestats.events import COUNTERS_CHANGED

# Group of the overviews of users who see every project.
EVERYTHING: Final = "everything"
# Group of the pages of agents, open to users with a role in any project.
AGENTS: Final = "agents"
# Message type of the channel layer; the consumer's ``relay_event`` handles it.
RELAY_TYPE: Final = "relay.event"
# Kinds of events that are relayed to browsers.
SHOWN: Final = frozenset({RUN_CHANGED, COUNTERS_CHANGED, AGENTS_CHANGED, LOG_GREW})


def run_group(run: int) -> str:
    """Return the group of the pages of one run."""
    return f"run.{run}"


def project_group(project: int) -> str:
    """Return the group of the overviews of users who see this project."""
    return f"project.{project}"


def log_group(stream: str) -> str:
    """Return the group of the pages of a log, such as ``run:7`` or ``build:3``."""
    return f"log.{stream.replace(':', '.')}"


def subject(payload: Mapping[str, Any]) -> object:
    """Return the stream or run of an event; a newer event of a kind replaces an older one."""
    return payload.get("stream") or payload.get("run")
