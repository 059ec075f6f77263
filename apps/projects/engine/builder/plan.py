"""What a build needs to know, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from apps.projects.engine.git import GitRemote
from apps.projects.engine.tags import ImageName

# On every layer that is made here: whose it is. What no successful build has is removed.
LAYER_LABEL: Final = "crawlyard.layer"
# On the finished image: the id of its build.
BUILD_LABEL: Final = "crawlyard.build"


@dataclass(frozen=True)
class EngineOptions:
    """Where and with what the Docker Engine builds; ``owner`` marks our layers."""

    url: str
    network: str
    memory_bytes: int
    owner: str
    wait_seconds: float = 60.0


@dataclass(frozen=True)
class BuildPlan:
    """One build. ``folder`` is empty, and its own."""

    build: int
    boot: str
    remote: GitRemote
    tag: str
    # What the sender said that the tag leads to; "" when it said nothing.
    expected_commit: str
    dockerfile: str
    script: str
    arguments: Mapping[str, str]
    image: ImageName
    labels: Mapping[str, str]
    engine: EngineOptions
    folder: Path
    max_image_bytes: int
    no_cache: bool = False
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def layer(self) -> str:
        """The value of ``LAYER_LABEL``. The same for all builds, so that layers are reused."""
        return self.engine.owner


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """``digest`` is the id of the image: what a run is started from."""

    digest: str
    size_bytes: int
    labels: dict[str, str]
    commit: str
