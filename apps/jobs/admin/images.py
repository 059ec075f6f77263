"""Form fields to choose the image and the frontier of a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final, cast

from django import forms
from django.db.models import QuerySet
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext
from unfold.widgets import UnfoldAdminSelectWidget

from apps.projects.models import Image
from apps.projects.states import ImageSource

MOST_BUILT: Final = 50
# Limit per repository of a registry (seed S1.7).
MOST_PUSHED: Final = 20
_DIGEST_CHARACTERS: Final = 12


def ordered(images: Iterable[Image]) -> list[Image]:
    """Sort images by project: built images newest first, then images of the registry.

    For each repository of a registry: ``latest`` first, then the tags in descending order, at most
    ``MOST_PUSHED``.
    """
    images = list(images)
    built = [image for image in images if image.source != ImageSource.REGISTRY]
    built.sort(key=lambda image: (image.created_at, image.pk), reverse=True)
    pushed = [image for image in images if image.source == ImageSource.REGISTRY]
    # Two stable sorts: the tags stay descending inside their repository.
    pushed.sort(key=lambda image: (image.tag == "latest", image.tag), reverse=True)
    pushed.sort(key=lambda image: image.name)
    of_registry = [
        image
        for _name, same in groupby(pushed, key=lambda image: image.name)
        for image in list(same)[:MOST_PUSHED]
    ]
    return built[:MOST_BUILT] + of_registry


def described(image: Image) -> str:
    """Return name, tag, short digest and size."""
    digest = image.digest.rpartition(":")[2][:_DIGEST_CHARACTERS]
    size = filesizeformat(image.size_bytes) if image.size_bytes else ""
    gone = gettext("removed") if image.removed_at else ""
    return " · ".join(part for part in (image.reference, digest, size, gone) if part)


class _ByProject(forms.models.ModelChoiceIterator):  # type: ignore[type-arg]
    """Iterator of choices, grouped by project."""

    def __iter__(self) -> Iterator[Any]:
        field = cast("ImageField", self.field)
        if field.empty_label is not None:
            yield ("", field.empty_label)
        rows = cast("QuerySet[Image]", self.queryset).order_by("project__name", "-created_at")
        for project, images in groupby(rows, key=lambda image: image.project):
            chosen = ordered(images)
            yield (str(project), [self.choice(image) for image in chosen])


class ImageField(forms.ModelChoiceField):  # type: ignore[type-arg]
    """Choice of an image, grouped by project."""

    widget = UnfoldAdminSelectWidget
    iterator = _ByProject

    def label_from_instance(self, obj: Any) -> str:
        return described(obj)


class FrontierField(forms.ModelChoiceField):  # type: ignore[type-arg]  # generic for the checker alone
    """Choice of a frontier, labelled with its project."""

    widget = UnfoldAdminSelectWidget

    def label_from_instance(self, obj: Any) -> str:
        """Return name and project: names are unique only within a project."""
        return f"{obj.project} · {obj.name}"
