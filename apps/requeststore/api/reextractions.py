"""REST views of re-extractions: progress and cancel."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ReadViewSet
from apps.access.api.idempotency import idempotent
from apps.access.states import Role
from apps.requeststore.api.filters import ReextractionFilter
from apps.requeststore.api.serializers import ReextractionSerializer
from apps.requeststore.models import Reextraction
from apps.requeststore.services.reextractions import cancel_reextraction


class ReextractionViewSet(ReadViewSet[Reextraction]):
    """Re-extractions of records from kept pages, newest first."""

    queryset = Reextraction.objects.all()
    serializer_class = ReextractionSerializer
    filterset_class = ReextractionFilter
    required_roles: ClassVar = {"cancel": Role.OPERATOR}

    @extend_schema(request=None, responses=ReextractionSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def cancel(self, request: Request, pk: str | None = None) -> Response:
        """Cancel after the current batch; its records stay. 409 when it has ended."""
        cancel_reextraction(self.get_object(), actor=self.person)
        return self.answer(self.get_object())
