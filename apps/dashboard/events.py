"""Names of the websocket groups, and the events that pages are told of."""

from __future__ import annotations

from typing import Final

from apps.agents.events import AGENTS_CHANGED
from apps.jobs.events import RUN_CHANGED
from apps.queuestats.events import COUNTERS_CHANGED

# Pages of people who see every project.
EVERYTHING: Final = "everything"
# The pages of agents: whoever sees a project sees all of them.
AGENTS: Final = "agents"
# The channel layer's own name of a message to a consumer; it calls ``relay_event``.
RELAY_TYPE: Final = "relay.event"
# What a browser gets to see; other events are for other readers.
SHOWN: Final = frozenset({RUN_CHANGED, COUNTERS_CHANGED, AGENTS_CHANGED})


def run_group(run: int) -> str:
    """The group of the pages of one run."""
    return f"run.{run}"


def project_group(project: int) -> str:
    """The group of the home pages of those who see this project."""
    return f"project.{project}"
