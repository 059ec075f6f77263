"""Preview of tags, and test of the connection to the git server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.conf import settings

from apps.projects.engine.git import GitRemote, list_tags
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.engine.tags import image_name, read_tag, write_tag
from apps.projects.errors import GitRefused
from apps.projects.models import Project
from apps.projects.reasons import text_of

TIMEOUT_SECONDS: Final = 20.0
SHOWN_TAGS: Final = 100


def git_remote(project: Project) -> GitRemote:
    """Return the git repository of a project, with its credentials."""
    return GitRemote(
        url=project.git_url,
        username=project.git_username,
        password=str(project.git_password),
        allowed_networks=tuple(settings.GIT_ALLOWED_NETWORKS),
        known_hosts=Path(settings.BUILDS_DIR) / "known_hosts",
    )


@dataclass(frozen=True)
class TagPreview:
    """Parts of a parsed tag, or why it is ignored. ``git_tag``: the tag that is cloned."""

    tag: str
    commit: str = ""
    fits: bool = False
    release: str = ""
    name: str = ""
    version: str = ""
    git_tag: str = ""
    image: str = ""
    code: str = ""
    reason: str = ""


@dataclass(frozen=True)
class GitConnection:
    """Result of listing the tags of the git server. ``tags`` are the first of ``count``."""

    count: int
    fitting: int
    tags: list[TagPreview]


def preview_tag(
    *,
    project: Project,
    tag: str,
    template: str | None = None,
    commit: str = "",
    colon_allowed: bool = True,
) -> TagPreview:
    """Parse ``tag`` by the project's template, or by another template."""
    template = project.tag_template if template is None else template
    try:
        reading = read_tag(template, tag, colon_allowed=colon_allowed)
        git_tag = write_tag(template, reading) if ":" in tag else tag
    except ProjectInputError as error:
        return TagPreview(tag, commit, code=error.code, reason=text_of(error))
    return TagPreview(
        tag=tag,
        commit=commit,
        fits=True,
        release=reading.release,
        name=reading.name,
        version=reading.version,
        git_tag=git_tag,
        image=str(image_name(project.slug, reading)),
    )


def check_connection(*, project: Project) -> GitConnection:
    """List the tags of the git server.

    Raises:
        GitRefused: with the reason, which does not contain the password.
    """
    if not project.git_url:
        raise GitRefused(text_of(ProjectInputError("no_git_url")))
    try:
        tags = list_tags(git_remote(project), timeout=TIMEOUT_SECONDS)
    except ProjectInputError as error:
        raise GitRefused(text_of(error)) from error
    read = [
        preview_tag(project=project, tag=preview.name, commit=preview.commit, colon_allowed=False)
        for preview in tags
    ]
    fitting = sum(preview.fits for preview in read)
    return GitConnection(count=len(read), fitting=fitting, tags=read[:SHOWN_TAGS])
