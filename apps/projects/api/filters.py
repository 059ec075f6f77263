"""Filters of the REST lists of builds and images."""

from __future__ import annotations

import django_filters
from django.utils.translation import gettext_lazy as _

from apps.access.api.filters import BooleanFilter, FilterSet, IdFilter
from apps.projects.models import Build, Image
from apps.projects.states import BuildState


class BuildFilter(FilterSet):
    """Filter of builds, such as ``?project=1&tag=prod/news/1.0&state=failed&state=lost``."""

    project = IdFilter(field_name="project_id")
    state = django_filters.MultipleChoiceFilter(choices=BuildState.choices, distinct=False)

    class Meta:
        model = Build
        fields = ["project", "tag", "name", "version", "state"]


class ImageFilter(FilterSet):
    """Filter of images, such as ``?project=1&available=true``."""

    project = IdFilter(field_name="project_id")
    available = BooleanFilter(
        field_name="removed_at", lookup_expr="isnull", help_text=_("Whether jobs can use it.")
    )

    class Meta:
        model = Image
        fields = ["project", "available", "name", "tag", "source", "digest"]
