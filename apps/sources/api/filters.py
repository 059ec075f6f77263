"""Filters of the lists of harvests and credentials."""

from __future__ import annotations

from typing import ClassVar

from apps.access.api.filters import FilterSet, IdFilter
from apps.sources.models import Credential, Harvest


class HarvestFilter(FilterSet):
    """Query filters of imports: ``?project=1&source=news&state=failed``."""

    project = IdFilter(field_name="project_id")

    class Meta:
        model = Harvest
        fields: ClassVar = ["project", "source", "state"]


class CredentialFilter(FilterSet):
    """``?project=1&name=main``."""

    project = IdFilter(field_name="project_id")

    class Meta:
        model = Credential
        fields: ClassVar = ["project", "name"]
