"""Serializer fields limited to what the caller may see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from django.db.models import Model, QuerySet
from django.utils.translation import gettext
from rest_framework import serializers

from apps.access.querysets import VisibleQuerySet
from apps.access.states import Role

if TYPE_CHECKING:
    _Related = serializers.PrimaryKeyRelatedField[Model]
else:
    _Related = serializers.PrimaryKeyRelatedField


class KnownFields:
    """Serializer mixin that rejects unknown fields of a request body by name."""

    def to_internal_value(self: Any, data: Any) -> Any:
        """Validate. Raises ``ValidationError``."""
        if isinstance(data, Mapping) and (unknown := sorted(set(data) - set(self.fields))):
            text = gettext("There is no such field.")
            raise serializers.ValidationError({name: [text] for name in unknown})
        return super().to_internal_value(data)  # type: ignore[misc]  # of the serializer


class VisibleRelatedField(_Related):
    """Related object by id; invisible ones "do not exist".

    ``at_least`` limits the choice to projects where the caller has that role.
    """

    def __init__(self, *, at_least: Role = Role.VIEWER, **kwargs: Any) -> None:
        self.at_least = at_least
        super().__init__(**kwargs)

    def get_queryset(self) -> QuerySet[Model]:
        """Objects visible to the caller."""
        rows = cast("QuerySet[Model]", super().get_queryset())
        if not isinstance(rows, VisibleQuerySet):
            raise TypeError(f"{rows.model.__name__} has no visible_to")
        return cast("QuerySet[Model]", rows.visible_to(self.context["request"].user, self.at_least))
