"""REST API of resource pools: lease, return, ban, disable, import, export."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, cast

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import WriteViewSet
from apps.access.api.idempotency import by_its_own_means, idempotent, key_of
from apps.access.services import record
from apps.access.states import Role
from apps.runtime.queries import database_now
from apps.seeds.api.resource_serializers import (
    ImportedResourcesSerializer,
    LeasedResourceSerializer,
    ResourceBanSerializer,
    ResourceFileSerializer,
    ResourceLeaseSerializer,
    ResourcePoolSerializer,
    ResourceReturnSerializer,
    ResourceSerializer,
    ReturnedResourceSerializer,
)
from apps.seeds.engine.resource_files import FileFormat
from apps.seeds.models import Resource, ResourcePool
from apps.seeds.services import pools
from apps.seeds.services.resource_files import export_resources, import_resources
from apps.seeds.services.resources import Leased, give_back, lease
from yardkit.protocol import ResourceOutcome

# The answer contains a secret and must not be cached.
_NO_STORE = {"Cache-Control": "no-store"}
_MAX_RETRY_SECONDS = 3600


class ResourcePoolViewSet(WriteViewSet[ResourcePool]):
    """Resource pools. Leasing needs the role editor, because the answer contains a secret."""

    queryset = ResourcePool.objects.select_related("project")
    serializer_class = ResourcePoolSerializer
    filterset_fields = ("project", "name", "is_enabled")
    required_roles = dict.fromkeys(("lease", "import_file"), Role.EDITOR)

    def get_queryset(self) -> Any:
        """Return pools annotated with the number of resources per state; one query."""
        rows = cast("Any", super().get_queryset())
        return rows.with_counts(timezone.now())

    def create_object(self, values: dict[str, Any]) -> ResourcePool:
        return self._counted(pools.create_pool(actor=self.person, values=values))

    def update_object(self, obj: ResourcePool, values: dict[str, Any]) -> ResourcePool:
        return self._counted(pools.change_pool(pool=obj, actor=self.person, values=values))

    def delete_object(self, obj: ResourcePool) -> None:
        """Delete a pool with its resources."""
        pools.delete_pool(pool=obj, actor=self.person)

    def _counted(self, pool: ResourcePool) -> ResourcePool:
        return ResourcePool.objects.with_counts(timezone.now()).get(pk=pool.pk)

    @extend_schema(
        request=ResourceLeaseSerializer,
        responses={201: LeasedResourceSerializer, 200: LeasedResourceSerializer},
    )
    @action(detail=True, methods=["post"])
    @by_its_own_means
    def lease(self, request: Request, pk: str) -> Response:
        """Lease the best free resource and return its secret; 200 and null while none is free.

        ``Retry-After`` then says when the next one may be free. Leases are recorded in the audit
        trail. An `Idempotency-Key` replaces `key`, for this caller only. No secret is stored for
        repeats: a repeated call gets the same resource until its lease ends, then 409 `lease_over`.
        """
        pool = self.get_object()
        body = ResourceLeaseSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        values = body.validated_data
        now = database_now()
        owner = f"user:{self.person.get_username()}"
        result = lease(
            pool=pool,
            owner=owner[:200],
            now=now,
            seconds=values["seconds"],
            key=values["key"] or self._key(request),
        )
        if not isinstance(result, Leased):
            headers = dict(_NO_STORE)
            if result.next_at is not None:
                seconds = (result.next_at - now).total_seconds()
                headers["Retry-After"] = str(int(min(max(1, seconds), _MAX_RETRY_SECONDS)))
            data = LeasedResourceSerializer({"resource": None, "next_at": result.next_at}).data
            return Response(data, headers=headers)
        record(
            actor=self.person,
            action="seeds.lease_resource",
            obj=result.resource,
            after={"lease": result.lease, "leased_until": result.until},
        )
        data = LeasedResourceSerializer(
            {
                "resource": {
                    "id": result.resource.pk,
                    "name": result.resource.name,
                    "lease": result.lease,
                    "until": result.until,
                    "secret": result.secret,
                },
                "next_at": None,
            }
        ).data
        return Response(data, status=201, headers=_NO_STORE)

    def _key(self, request: Request) -> str:
        # Lease keys are unique in a pool, idempotency keys per caller.
        key = key_of(request)
        return "" if key is None else sha256(f"{self.person.pk} {key}".encode()).hexdigest()

    @extend_schema(request=ResourceFileSerializer, responses=ImportedResourcesSerializer)
    @action(detail=True, methods=["post"], url_path="import", url_name="import")
    @idempotent
    def import_file(self, request: Request, pk: str) -> Response:
        """Add resources and change secrets, all or nothing; 422 with every problem by line."""
        pool = self.get_object()
        body = ResourceFileSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        done = import_resources(
            pool=pool,
            raw=body.validated_data["text"],
            kind=FileFormat(body.validated_data["file_format"]),
            actor=self.person,
        )
        return Response(ImportedResourcesSerializer(done.as_dict()).data)

    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.STR})
    @action(detail=True, methods=["get"], pagination_class=None, filter_backends=[])
    def export(self, request: Request, pk: str) -> StreamingHttpResponse:
        """Export all resources as CSV, without their secrets."""
        pool = self.get_object()
        headers = {"Content-Disposition": f'attachment; filename="{pool.name}.csv"'}
        return StreamingHttpResponse(
            export_resources(pool), content_type="text/csv; charset=utf-8", headers=headers
        )


class ResourceViewSet(WriteViewSet[Resource]):
    """Resources. Secrets are write-only."""

    queryset = Resource.objects.select_related("pool__project").defer("secret")
    serializer_class = ResourceSerializer
    filterset_fields = ("pool", "state", "name", "leased_by")
    required_roles = dict.fromkeys(
        ("give_back", "ban", "unban", "disable", "enable", "release", "reset"), Role.OPERATOR
    )

    def create_object(self, values: dict[str, Any]) -> Resource:
        """Add a resource to a pool."""
        return pools.create_resource(
            pool=values["pool"], name=values["name"], secret=values["secret"], actor=self.person
        )

    def update_object(self, obj: Resource, values: dict[str, Any]) -> Resource:
        """Change the name or the secret."""
        return pools.change_resource(
            resource=obj, actor=self.person, name=values.get("name"), secret=values.get("secret")
        )

    def delete_object(self, obj: Resource) -> None:
        pools.delete_resource(resource=obj, actor=self.person)

    @extend_schema(request=ResourceReturnSerializer, responses=ReturnedResourceSerializer)
    @action(detail=True, methods=["post"], url_path="return", url_name="return")
    @idempotent
    def give_back(self, request: Request, pk: str) -> Response:
        """End a lease with its outcome; an older lease number is counted and changes nothing."""
        resource = self.get_object()
        body = ResourceReturnSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        values = body.validated_data
        done = give_back(
            project=resource.pool.project_id,
            resource=resource.pk,
            lease=values["lease"],
            outcome=ResourceOutcome[values["outcome"].upper()],
            now=database_now(),
            reason=values["reason"],
        )
        shown = {"code": done.code, "resource": self.get_serializer(done.resource).data}
        return Response(shown)

    @extend_schema(request=ResourceBanSerializer, responses=ResourceSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def ban(self, request: Request, pk: str) -> Response:
        """Exclude the resource from leasing; the current holder may finish."""
        resource = self.get_object()
        body = ResourceBanSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        pools.ban(
            resource=resource,
            actor=self.person,
            now=database_now(),
            reason=body.validated_data["reason"],
        )
        return self.answer(resource)

    @extend_schema(request=None, responses=ResourceSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def unban(self, request: Request, pk: str) -> Response:
        """Lift the ban; the resource is free at once."""
        resource = self.get_object()
        pools.unban(resource=resource, actor=self.person, now=database_now())
        return self.answer(resource)

    @extend_schema(request=None, responses=ResourceSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def disable(self, request: Request, pk: str) -> Response:
        """Exclude the resource from leasing until it is enabled; the current holder may finish."""
        resource = self.get_object()
        pools.disable(resource=resource, actor=self.person)
        return self.answer(resource)

    @extend_schema(request=None, responses=ResourceSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def enable(self, request: Request, pk: str) -> Response:
        """Make a disabled resource available again."""
        resource = self.get_object()
        pools.enable(resource=resource, actor=self.person, now=database_now())
        return self.answer(resource)

    @extend_schema(request=None, responses=ResourceSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def release(self, request: Request, pk: str) -> Response:
        """End the lease without waiting for its holder."""
        resource = self.get_object()
        pools.release(resource=resource, actor=self.person, now=database_now())
        return self.answer(resource)

    @extend_schema(request=None, responses=ResourceSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def reset(self, request: Request, pk: str) -> Response:
        """Reset score, failures and cool-down."""
        resource = self.get_object()
        pools.reset(resource=resource, actor=self.person, now=database_now())
        return self.answer(resource)
