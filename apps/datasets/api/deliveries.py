"""Deliveries of datasets over REST."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import WriteViewSet
from apps.access.api.fields import KnownFields
from apps.access.api.idempotency import idempotent
from apps.access.states import Role
from apps.datasets.engine.targets.base import BadTarget
from apps.datasets.engine.targets.factory import KINDS, read_credentials
from apps.datasets.models import Dataset, Delivery, DeliveryFailure
from apps.datasets.queries.deliveries import accountings, lag_seconds
from apps.datasets.services import deliveries as service
from apps.runtime.queries import database_now


class DataDeliverySerializer(KnownFields, serializers.ModelSerializer[Delivery]):
    """Copies the items of a dataset to a target. ``credentials`` are write-only."""

    kind = serializers.ChoiceField(choices=KINDS)
    options = serializers.DictField(
        required=False, default=dict, help_text=_("Depends on the kind, see the guide on data.")
    )
    credentials = serializers.DictField(
        child=serializers.CharField(allow_blank=True, max_length=4000),
        write_only=True,
        required=False,
        default=dict,
        help_text=_('user, password, key. Omitted ones are kept, "" removes one.'),
    )
    has_credentials = serializers.SerializerMethodField(
        help_text=_("Names of the stored credentials.")
    )
    from_now = serializers.BooleanField(
        write_only=True,
        required=False,
        default=False,
        help_text=_("Skip the items that are stored already."),
    )
    accounting = serializers.SerializerMethodField(
        help_text=_("stored = delivered + waiting + failed + missed + skipped")
    )
    lag_seconds = serializers.SerializerMethodField(
        help_text=_("How long items have been waiting; 0 if all is delivered.")
    )

    class Meta:
        model = Delivery
        fields = (
            "id",
            "dataset",
            "name",
            "kind",
            "url",
            "options",
            "credentials",
            "has_credentials",
            "mode",
            "from_now",
            "state",
            "error",
            "failures",
            "accounting",
            "lag_seconds",
            "behind_since",
            "delivered_at",
            "created_at",
        )
        read_only_fields = (
            "dataset",
            "state",
            "error",
            "failures",
            "behind_since",
            "delivered_at",
            "created_at",
        )
        # Uniqueness is validated by the service.
        validators: ClassVar[list[Any]] = []

    def get_fields(self) -> dict[str, Any]:
        """Make what a position depends on read-only for an existing delivery."""
        fields: dict[str, Any] = super().get_fields()
        if self.instance is not None and not isinstance(self.instance, list):
            for name in ("name", "kind", "mode", "from_now"):
                fields[name].read_only = True
        return fields

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_has_credentials(self, delivery: Delivery) -> list[str]:
        """Return the names of stored credentials, without values."""
        try:
            known = read_credentials(delivery.credentials)
        except BadTarget:
            return []
        return [name for name in known.__struct_fields__ if getattr(known, name)]

    @extend_schema_field(serializers.DictField(child=serializers.IntegerField()))
    def get_accounting(self, delivery: Delivery) -> dict[str, int]:
        """Return the numbers of items."""
        counted = self.context.get("accountings") or accountings([delivery])
        return counted[delivery.pk].as_dict()

    def get_lag_seconds(self, delivery: Delivery) -> float:
        """Return the age of what waits."""
        return lag_seconds(delivery, database_now())


class AgainSerializer(KnownFields, serializers.Serializer[Any]):
    """From where items are delivered again; from the beginning without either."""

    run = serializers.IntegerField(required=False, min_value=1)
    since = serializers.DateTimeField(required=False, help_text=_("Time of the first item."))

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        """Allow one of both."""
        if len(values) > 1:
            raise serializers.ValidationError({"since": [_("Use run or since, not both.")]})
        return values


class UndeliveredSerializer(serializers.ModelSerializer[DeliveryFailure]):
    """An item that the target has refused."""

    run = serializers.IntegerField(source="run_number")
    incarnation = serializers.CharField(source="boot")

    class Meta:
        model = DeliveryFailure
        fields = ("id", "run", "incarnation", "seq", "url", "item", "reason", "at")
        read_only_fields = fields


class RetriedSerializer(serializers.Serializer[Any]):
    """Number of items that are delivered again."""

    items = serializers.IntegerField()


@extend_schema_view(
    list=extend_schema(summary="Deliveries of a dataset"),
    create=extend_schema(summary="Add a delivery"),
    retrieve=extend_schema(summary="One with its accounting"),
    update=extend_schema(summary="Change address, options and credentials"),
    partial_update=extend_schema(summary="Change some of them"),
    destroy=extend_schema(summary="Delete a delivery"),
)
class DataDeliveryViewSet(WriteViewSet[Delivery]):
    """Deliveries of a dataset. Managed by editors; credentials are write-only."""

    queryset = Delivery.objects.select_related("dataset")
    serializer_class = DataDeliverySerializer
    required_roles = dict.fromkeys(("pause", "resume", "again", "retry_failures"), Role.EDITOR) | {
        "dead_letters": Role.VIEWER
    }

    def get_queryset(self) -> QuerySet[Delivery]:
        """Rows of the dataset."""
        rows = super().get_queryset()
        if getattr(self, "swagger_fake_view", False):
            return rows
        return rows.filter(dataset=self._dataset)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Find the dataset: to others nothing below it exists."""
        super().initial(request, *args, **kwargs)
        visible = Dataset.objects.visible_to(request.user)
        self._dataset: Dataset = get_object_or_404(visible, pk=kwargs["dataset"])

    def get_serializer(self, *args: Any, **kwargs: Any) -> Any:
        """Count the deliveries of a page together."""
        serializer: Any = super().get_serializer(*args, **kwargs)
        if kwargs.get("many"):
            serializer.context["accountings"] = accountings(args[0])
        return serializer

    def project_of_input(self, values: Any) -> int | None:
        """Return the dataset's project."""
        return self._dataset.project_id

    def create_object(self, values: dict[str, Any]) -> Delivery:
        return service.create_delivery(dataset=self._dataset, actor=self.person, **values)

    def update_object(self, obj: Delivery, values: dict[str, Any]) -> Delivery:
        """Change a delivery; without ``credentials`` they are kept."""
        return service.change_delivery(
            delivery=obj,
            url=values.get("url"),
            options=values.get("options"),
            credentials=values.get("credentials"),
            actor=self.person,
        )

    def delete_object(self, obj: Delivery) -> None:
        """Delete a delivery and its dead letters."""
        service.delete_delivery(delivery=obj, actor=self.person)

    @extend_schema(summary="Pause", request=None, responses=DataDeliverySerializer)
    @idempotent
    def pause(self, request: Request, dataset: int, pk: str | None = None) -> Response:
        """Pause: items wait."""
        return self.answer(service.pause_delivery(delivery=self.get_object(), actor=self.person))

    @extend_schema(summary="Resume", request=None, responses=DataDeliverySerializer)
    @idempotent
    def resume(self, request: Request, dataset: int, pk: str | None = None) -> Response:
        """Go on; a failing delivery tries at once."""
        return self.answer(service.resume_delivery(delivery=self.get_object(), actor=self.person))

    @extend_schema(
        summary="Deliver again", request=AgainSerializer, responses=DataDeliverySerializer
    )
    @idempotent
    def again(self, request: Request, dataset: int, pk: str | None = None) -> Response:
        """Deliver again from a run, a time or the beginning. 409 if nothing is stored there."""
        delivery = self.get_object()
        asked = AgainSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        return self.answer(
            service.deliver_again(delivery=delivery, actor=self.person, **asked.validated_data)
        )

    @extend_schema(summary="Retry undelivered items", request=None, responses=RetriedSerializer)
    @idempotent
    def retry_failures(self, request: Request, dataset: int, pk: str | None = None) -> Response:
        """Have the refused items delivered again."""
        taken = service.retry_failures(delivery=self.get_object(), actor=self.person)
        return Response({"items": taken})

    @extend_schema(
        summary="Undelivered items, newest first", responses=UndeliveredSerializer(many=True)
    )
    def dead_letters(self, request: Request, dataset: int, pk: str | None = None) -> Response:
        """Items that the target has refused, with the reason."""
        rows = self.get_object().dead_letters.all()
        page: Any = self.paginate_queryset(cast("QuerySet[Delivery]", rows))
        return self.get_paginated_response(UndeliveredSerializer(page, many=True).data)
