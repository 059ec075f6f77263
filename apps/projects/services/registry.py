"""Images of a project's registry: digests, and the list of images."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from django.conf import settings
from django.db import transaction

from apps.access.models import User
from apps.access.services import record
from apps.projects.engine.addresses import check_registry_url
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.engine.registry import LATEST, RegistryClient
from apps.projects.errors import ImageKnown, RegistryRefused
from apps.projects.models import Image, Project
from apps.projects.reasons import text_of
from apps.projects.services.images import list_image
from apps.projects.states import ImageSource

logger = logging.getLogger(__name__)

# Timeout in seconds; the sender of the webhook waits for the response.
DELIVERY_SECONDS: Final = 6.0
REFRESH_SECONDS: Final = 30.0


@dataclass
class Refreshed:
    """Result of listing a registry; images are references ``host/repository:tag``."""

    added: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    # Tags that are listed with another digest; they are not updated.
    differ: list[str] = field(default_factory=list)


def registry_name(project: Project) -> str:
    """Return ``host/repository``, the name of the registry's images in the engine.

    Raises ``ProjectInputError``.
    """
    if not (project.registry_url and project.registry_repository):
        raise ProjectInputError("registry_not_set")
    address = check_registry_url(
        project.registry_url, allowed_networks=settings.GIT_ALLOWED_NETWORKS
    )
    return f"{address.authority}/{project.registry_repository}"


def open_registry(project: Project, *, timeout: float) -> RegistryClient:
    """Return a registry client with the project's credentials. Raises ``ProjectInputError``."""
    if not (project.registry_url and project.registry_repository):
        raise ProjectInputError("registry_not_set")
    return RegistryClient(
        project.registry_url,
        project.registry_repository,
        username=project.registry_username,
        password=project.registry_password,
        allowed_networks=settings.GIT_ALLOWED_NETWORKS,
        timeout=timeout,
    )


def look_up_digest(project: Project, tag: str, *, timeout: float = DELIVERY_SECONDS) -> str:
    """Return the digest of an image in the project's registry. Raises ``ProjectInputError``."""
    with open_registry(project, timeout=timeout) as registry:
        return registry.digest(tag)


def refresh_images(
    *, project: Project, now: datetime, actor: User | None, timeout: float = REFRESH_SECONDS
) -> Refreshed:
    """List the images of the registry: ``latest``, then descending, at most 20 (seed S1.7).

    The digest of ``latest`` is updated; any other tag keeps its digest. The registry is queried
    outside of the transaction.

    Raises:
        RegistryRefused: with the reason.
    """
    try:
        name = registry_name(project)
        with open_registry(project, timeout=timeout) as registry:
            digests = [(tag, registry.digest(tag)) for tag in registry.tags()]
    except ProjectInputError as error:
        logger.warning("project %s: its registry cannot be asked: %s", project.slug, error)
        raise RegistryRefused(text_of(error)) from error
    return _list_found(project, name, digests, now, actor)


@transaction.atomic
def _list_found(
    project: Project, name: str, found: list[tuple[str, str]], now: datetime, actor: User | None
) -> Refreshed:
    result = Refreshed()
    stored = {
        image.tag: image
        for image in Image.objects.filter(project=project, name=name, removed_at=None)
    }
    # Insert the oldest first, so that the newest image has the highest ID and is first in lists.
    for tag, digest in reversed(found):
        reference = f"{name}:{tag}"
        try:
            list_image(
                project=project,
                source=ImageSource.REGISTRY,
                name=name,
                tag=tag,
                digest=digest,
                now=now,
                moves=tag == LATEST,
            )
        except ImageKnown as error:
            same = error.image.digest == digest
            (result.known if same else result.differ).append(reference)
        else:
            (result.moved if tag in stored else result.added).append(reference)
    if result.added or result.moved:
        record(
            actor=actor,
            action="projects.refresh_images",
            obj=project,
            after={"added": result.added, "moved": result.moved},
        )
    return result
