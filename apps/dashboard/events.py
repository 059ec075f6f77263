"""Names of the websocket groups, and the events that pages are told of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apps.agents.events import AGENTS_CHANGED
from apps.joblogs.events import LOG_GREW
from apps.jobs.events import RUN_CHANGED
from apps.queuestats.events import COUNTERS_CHANGED

# Pages of people who see every project.
EVERYTHING: Final = "everything"
# The pages of agents: whoever sees a project sees all of them.
AGENTS: Final = "agents"
# The channel layer's own name of a message to a consumer; it calls ``relay_event``.
RELAY_TYPE: Final = "relay.event"
# What a browser gets to see; other events are for other readers.
SHOWN: Final = frozenset({RUN_CHANGED, COUNTERS_CHANGED, AGENTS_CHANGED, LOG_GREW})


def run_group(run: int) -> str:
    """The group of the pages of one run."""
    return f"run.{run}"


def project_group(project: int) -> str:
    """The group of the home pages of those who see this project."""
    return f"project.{project}"


def log_group(stream: str) -> str:
    """The group of those who look at the log ``run:7`` or ``build:3``."""
    return f"log.{stream.replace(':', '.')}"


def subject(payload: Mapping[str, Any]) -> object:
    """What an event is about: of two of one kind about the same, the newer one says it all."""
    return payload.get("stream") or payload.get("run")
