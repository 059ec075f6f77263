"""REST views of re-balances: progress and cancel."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ReadViewSet
from apps.access.api.idempotency import idempotent
from apps.access.states import Role
from apps.requeststore.api.filters import RebalanceFilter
from apps.requeststore.api.serializers import RebalanceSerializer
from apps.requeststore.models import Rebalance
from apps.requeststore.services.rebalances import cancel_rebalance


class RebalanceViewSet(ReadViewSet[Rebalance]):
    """Re-balances, newest first."""

    queryset = Rebalance.objects.all()
    serializer_class = RebalanceSerializer
    filterset_class = RebalanceFilter
    required_roles: ClassVar = {"cancel": Role.EDITOR}

    @extend_schema(request=None, responses=RebalanceSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def cancel(self, request: Request, pk: str | None = None) -> Response:
        """Cancel after the current batch; moved requests stay moved. 409 when it has ended."""
        cancel_rebalance(self.get_object(), actor=self.person)
        return self.answer(self.get_object())
