"""REST list of operations on many seeds, and their cancellation."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ReadViewSet
from apps.access.api.idempotency import idempotent
from apps.access.states import Role
from apps.seeds import services
from apps.seeds.api.filters import OperationFilter
from apps.seeds.api.serializers import OperationSerializer
from apps.seeds.models import Operation


class OperationViewSet(ReadViewSet[Operation]):
    """Operations on many seeds, newest first."""

    queryset = Operation.objects.select_related("frontier")
    serializer_class = OperationSerializer
    filterset_class = OperationFilter
    required_roles: ClassVar = {"cancel": Role.OPERATOR}

    @extend_schema(request=None, responses=OperationSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def cancel(self, request: Request, pk: str | None = None) -> Response:
        """Cancel the operation after the current slice; completed slices stay.

        409 when it has ended, or when seeds are being moved (`move_under_way`).
        """
        services.cancel_operation(self.get_object(), actor=self.person)
        return self.answer(self.get_object())
