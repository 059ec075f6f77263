"""``RUN_VOLUMES``: folders of a host mounted into containers of runs.

    /srv/models:/models:ro shop=/srv/shop:/shop shop/prices=/srv/prices:/prices

For every run, for runs of one project, for runs of one job. Only the host's operator decides what a
container sees; a job cannot.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from yardkit.env import EnvError

NAME: Final = "RUN_VOLUMES"
# The run's own folder and its temporary files.
_TAKEN: Final = ("/crawlyard", "/tmp")  # noqa: S108 - inside the container
_ENTRY: Final = re.compile(
    r"(?:(?P<project>[^/=:]+)(?:/(?P<job>[^=:]+))?=)?"
    r"(?P<source>/[^:=]+):(?P<target>/[^:=]+?)/?(?P<ro>:ro)?"
)

# (project, job, source, target, read only); "" stands for every project or job.
Volume = tuple[str, str, str, str, bool]


def run_volumes(text: str) -> tuple[Volume, ...]:
    """Parse the entries, separated by blanks. Raises ``EnvError``."""
    volumes: list[Volume] = []
    for number, entry in enumerate(text.split(), 1):
        match = _ENTRY.fullmatch(entry)
        parts = [] if match is None else f"{match['source']}{match['target']}".split("/")
        if match is None or ".." in parts or not match["target"].strip("/"):
            remedy = "write [PROJECT[/JOB]=]/folder/of/the/host:/folder/inside[:ro]"
            raise EnvError(NAME, f"entry {number} is not understood", remedy)
        target = match["target"]
        if any(f"{target}/".startswith(f"{taken}/") for taken in _TAKEN):
            raise EnvError(NAME, f"entry {number}: {target} is taken", "use another folder inside")
        project, job = unquote(match["project"] or ""), unquote(match["job"] or "")
        volumes.append((project, job, match["source"], target, match["ro"] is not None))
    return tuple(volumes)
