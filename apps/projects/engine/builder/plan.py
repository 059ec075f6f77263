"""Input and result of a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from apps.projects.engine.git import GitRemote
from apps.projects.engine.tags import ImageName

# Owner label of every layer built here; layers that belong to no successful build are removed.
LAYER_LABEL: Final = "crawlyard.layer"
# Label of a finished image: the ID of its build.
BUILD_LABEL: Final = "crawlyard.build"


@dataclass(frozen=True)
class EngineOptions:
    """URL and options of the Docker Engine; ``owner`` labels the layers of this installation."""

    url: str
    network: str
    memory_bytes: int
    owner: str
    wait_seconds: float = 60.0


@dataclass(frozen=True)
class BuildPlan:
    """Input of one build. ``folder`` is an empty folder for this build only."""

    build: int
    boot: str
    remote: GitRemote
    tag: str
    # Commit of the tag as stated by the sender; "" if unknown.
    expected_commit: str
    dockerfile: str
    script: str
    arguments: Mapping[str, str]
    image: ImageName
    labels: Mapping[str, str]
    engine: EngineOptions
    folder: Path
    max_image_bytes: int
    # Base image of Scrapy projects without a Dockerfile.
    scrapy_base: str = ""
    no_cache: bool = False
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def layer(self) -> str:
        """Value of ``LAYER_LABEL``; equal for all builds, so that layers are reused."""
        return self.engine.owner


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """Result of a build; ``digest`` is the image ID that runs use.

    ``description``: its spiders as JSON, None if it describes none; ``warning``: why it could not.
    """

    digest: str
    size_bytes: int
    labels: dict[str, str]
    commit: str
    description: dict[str, Any] | None = None
    warning: str = ""
