"""Serializer fields that respect who may see what."""

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
    """Mixin of serializers of request bodies: a field that it does not have is refused by name."""

    def to_internal_value(self: Any, data: Any) -> Any:
        """The values of the fields. Raises ``ValidationError``."""
        if isinstance(data, Mapping) and (unknown := sorted(set(data) - set(self.fields))):
            text = gettext("There is no such field.")
            raise serializers.ValidationError({name: [text] for name in unknown})
        return super().to_internal_value(data)  # type: ignore[misc]  # of the serializer


class VisibleRelatedField(_Related):
    """A related object by id, if the caller sees it; else it "does not exist".

    ``at_least`` narrows the choice to projects where the caller has that role.
    """

    def __init__(self, *, at_least: Role = Role.VIEWER, **kwargs: Any) -> None:
        self.at_least = at_least
        super().__init__(**kwargs)

    def get_queryset(self) -> QuerySet[Model]:
        """Only what the caller of this request sees."""
        rows = cast("QuerySet[Model]", super().get_queryset())
        if not isinstance(rows, VisibleQuerySet):
            raise TypeError(f"{rows.model.__name__} has no visible_to")
        return cast("QuerySet[Model]", rows.visible_to(self.context["request"].user, self.at_least))
