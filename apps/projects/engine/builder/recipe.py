"""Dockerfile for repositories of Scrapy projects that have none."""

from __future__ import annotations

import json
import tomllib
from typing import Any, Final

from apps.projects.engine.builder.control import BuildStepFailed
from apps.projects.engine.git import FetchedTag

MAX_BYTES: Final = 1024**2
# In the base image: the versions of what our package needs and Scrapy does not.
CONSTRAINTS: Final = "/etc/crawlyard/constraints.txt"
_INSTALL: Final = (
    *("python3", "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"),
    *("--root-user-action", "ignore", "--constraint", CONSTRAINTS),
)


def scrapy_recipe(fetched: FetchedTag, base: str) -> bytes | None:
    """Return the Dockerfile of a Scrapy project; None if the repository is none.

    Requirements are those of ``requirements.txt``, else the dependencies of ``pyproject.toml``.
    Raises ``BuildStepFailed`` if there are neither.
    """
    if fetched.read("scrapy.cfg", max_bytes=MAX_BYTES) is None:
        return None
    requirements = fetched.read("requirements.txt", max_bytes=MAX_BYTES)
    if requirements is not None:
        # Files of the repository that it names must be there when it is installed; otherwise the
        # layer of the requirements outlives changes of the code.
        files = "." if _names_files(requirements) else "requirements.txt"
        copy, wanted = f"COPY {files} ./", ["-r", "requirements.txt"]
    else:
        copy, wanted = "", _dependencies(fetched.read("pyproject.toml", max_bytes=MAX_BYTES))
    lines = [
        f"FROM {base}",
        "USER 0",
        copy,
        f"RUN {json.dumps([*_INSTALL, *wanted])}" if wanted else "",
        "USER 10001:10001",
        "COPY . ./",
        'CMD ["python3", "-m", "yardscrapy", "crawl"]',
    ]
    return "".join(f"{line}\n" for line in lines if line).encode()


def _names_files(requirements: bytes) -> bool:
    lines = [line.strip() for line in requirements.decode("utf-8", "replace").splitlines()]
    return any(line.startswith(("-", ".", "/")) or "file:" in line for line in lines)


def _dependencies(pyproject: bytes | None) -> list[str]:
    if pyproject is None:
        raise BuildStepFailed("recipe_no_requirements")
    try:
        content: dict[str, Any] = tomllib.loads(pyproject.decode())
    except ValueError as error:
        raise BuildStepFailed("recipe_pyproject", error=str(error)) from error
    project = content.get("project")
    dependencies = project.get("dependencies") if isinstance(project, dict) else None
    if not isinstance(dependencies, list) or not all(isinstance(d, str) for d in dependencies):
        raise BuildStepFailed("recipe_no_requirements")
    return dependencies
