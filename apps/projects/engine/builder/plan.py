"""Input and result of a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from apps.projects.engine.git import GitRemote
from apps.projects.engine.tags import ImageName

# Owner label of every layer made here; layers of no successful build are removed.
LAYER_LABEL: Final = "crawlyard.layer"
# Label of the finished image: the id of its build.
BUILD_LABEL: Final = "crawlyard.build"


@dataclass(frozen=True)
class EngineOptions:
    """Address and options of the Docker Engine; ``owner`` marks our layers."""

    url: str
    network: str
    memory_bytes: int
    owner: str
    wait_seconds: float = 60.0


@dataclass(frozen=True)
class BuildPlan:
    """Input of one build. ``folder`` is empty and used by this build alone."""

    build: int
    boot: str
    remote: GitRemote
    tag: str
    # Commit of the tag as the sender stated it; "" when it stated none.
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
        """Value of ``LAYER_LABEL``, the same for all builds, so that layers are reused."""
        return self.engine.owner


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """Result of a build; ``digest`` is the image id that runs are started from."""

    digest: str
    size_bytes: int
    labels: dict[str, str]
    commit: str
