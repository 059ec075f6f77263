"""Services that register images, so that jobs can use them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from apps.access.services import mask
from apps.projects.errors import ImageKnown
from apps.projects.models import Build, Image, ImageDescription, Project
from apps.projects.states import ImageSource


@transaction.atomic
def list_image(
    *,
    project: Project,
    source: ImageSource,
    name: str,
    tag: str,
    digest: str,
    now: datetime,
    size_bytes: int = 0,
    labels: Mapping[str, Any] | None = None,
    commit: str = "",
    build: Build | None = None,
    moves: bool = False,
) -> Image:
    """Insert an image, or restore a removed image.

    Args:
        moves: whether the tag may move to another image, as ``latest`` of a registry and the tag
            of a rebuild do; the row then gets the new digest.

    Raises:
        ImageKnown: the image is already listed; ``.image`` is its row.
    """
    values = {
        "source": source,
        "digest": digest,
        "size_bytes": size_bytes,
        "labels": dict(labels or {}),
        "commit": commit,
        "build": build,
        "created_at": now,
        "removed_at": None,
    }
    place = {"project": project, "name": name, "tag": tag}
    try:
        with transaction.atomic():
            return Image.objects.create(**place, **values)
    except IntegrityError:
        known = Image.objects.select_for_update().filter(**place).first()
        if known is None:
            raise
    if known.removed_at is None and (not moves or known.digest == digest):
        raise ImageKnown(known)
    Image.objects.filter(pk=known.pk).update(**values)
    known.refresh_from_db()
    return known


def store_description(
    *, image: Image, description: Mapping[str, Any] | None, now: datetime
) -> None:
    """Replace the description of an image; None removes that of an earlier build.

    Settings and defaults with names such as ``API_KEY`` are masked: everyone who sees the image
    sees them.
    """
    ImageDescription.objects.filter(image=image).delete()
    if description is None:
        return
    ImageDescription.objects.create(
        image=image,
        kind=description["kind"],
        spiders=[_masked(spider) for spider in description["spiders"]],
        settings=mask(description["settings"]),
        errors=description["errors"],
        created_at=now,
    )


def _masked(spider: Mapping[str, Any]) -> dict[str, Any]:
    arguments = [
        {**argument, "default": mask({argument["name"]: argument["default"]})[argument["name"]]}
        for argument in spider["arguments"]
    ]
    return {**spider, "arguments": arguments, "settings": mask(spider["settings"])}
