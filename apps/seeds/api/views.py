"""REST view set of frontiers. Each action calls one service."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import WriteViewSet
from apps.access.api.etags import etag_of, require_match
from apps.access.states import Role
from apps.seeds import services
from apps.seeds.api.bodies import SeedsJSONParser
from apps.seeds.api.calls import SeedCallsMixin
from apps.seeds.api.files import SeedFilesMixin
from apps.seeds.api.filters import FrontierFilter
from apps.seeds.api.granularity import GranularityMixin
from apps.seeds.api.management import ManagementMixin
from apps.seeds.api.segment_stats import StatsMixin
from apps.seeds.api.serializers import FrontierSerializer
from apps.seeds.api.service_calls import SeedServiceMixin
from apps.seeds.models import Frontier


class FrontierViewSet(
    SeedServiceMixin,
    SeedCallsMixin,
    StatsMixin,
    ManagementMixin,
    GranularityMixin,
    SeedFilesMixin,
    WriteViewSet[Frontier],
):
    """Frontiers and their seeds. Editors change frontiers, operators work with their seeds."""

    queryset = Frontier.objects.all()
    serializer_class = FrontierSerializer
    filterset_class = FrontierFilter
    parser_classes = (SeedsJSONParser,)
    required_roles: ClassVar = {
        "look_up": Role.VIEWER,
        "drop_segment": Role.EDITOR,
        "change_granularity": Role.EDITOR,
        "wipe": Role.ADMIN,
        **dict.fromkeys(
            (
                "add",
                "lease",
                "finish",
                "extend",
                "give_back",
                "grab",
                "reopen",
                "forget",
                "reopen_failed",
                "import_file",
            ),
            Role.OPERATOR,
        ),
    }

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Treat ``look_up`` as a read, although it may be sent by POST."""
        self.only_reads = self.action == "look_up"
        super().initial(request, *args, **kwargs)

    def create_object(self, values: dict[str, Any]) -> Frontier:
        return services.create_frontier(values=values, actor=self.person)

    def update_object(self, obj: Frontier, values: dict[str, Any]) -> Frontier:
        """Update a frontier; 409 for rules that only `granularity` changes."""
        return services.update_frontier(frontier=obj, values=values, actor=self.person)

    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Delete a frontier. 409 if it still has seeds, or if jobs use it.

        The seed service is queried, so no transaction is open meanwhile.
        """
        frontier = self.get_object()
        require_match(request, etag_of(frontier, self.get_serializer(frontier).data))
        services.delete_frontier(frontier=frontier, actor=self.person)
        return Response(status=status.HTTP_204_NO_CONTENT)
