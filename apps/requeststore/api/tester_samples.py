"""REST API of sample pages for rule tests."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models.functions import Length
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ReadViewSet
from apps.access.api.fields import VisibleRelatedField
from apps.access.api.idempotency import repeatable
from apps.access.services import require_role
from apps.access.states import Role
from apps.projects.models import Project
from apps.requeststore.api.filters import SamplePageFilter
from apps.requeststore.api.store_errors import StoreErrorsMixin
from apps.requeststore.api.tester import GivenPageSerializer, page_given
from apps.requeststore.models import SamplePage
from apps.requeststore.services.sample_pages import drop_page, fetch_page, keep_page
from apps.requeststore.services.store import shared_request_store


class SamplePageSerializer(serializers.ModelSerializer[SamplePage]):
    """Sample page without its body."""

    bytes = serializers.SerializerMethodField()

    class Meta:
        model = SamplePage
        fields: ClassVar = [
            "id",
            "project",
            "biz",
            "rule",
            "url",
            "status",
            "headers",
            "bytes",
            "truncated",
            "fetched",
            "created_by",
            "created_at",
        ]

    def get_bytes(self, sample: SamplePage) -> int:
        """Return the size of the body."""
        size: int | None = getattr(sample, "size", None)
        return len(sample.body) if size is None else size


class KeepSerializer(serializers.Serializer[Any]):
    """Sample page to store: from the body, or downloaded from `url`."""

    project = VisibleRelatedField(queryset=Project.objects.all())
    biz = serializers.CharField(max_length=32)
    rule = serializers.CharField(max_length=64, allow_blank=True, default="")
    page = GivenPageSerializer(required=False)
    url = serializers.CharField(
        required=False, max_length=8000, help_text=_("URL to download now, instead of `page`.")
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require exactly one of page and URL."""
        if ("page" in attrs) == ("url" in attrs):
            raise serializers.ValidationError(_("Specify either `page` or `url`."))
        return attrs


class SamplePageViewSet(StoreErrorsMixin, ReadViewSet[SamplePage]):
    """Sample pages for rule tests; at most 50 of a biz, 1 MiB each."""

    # Bodies (up to 1 MiB each) are not loaded for lists.
    queryset = SamplePage.objects.annotate(size=Length("body")).defer("body")
    serializer_class = SamplePageSerializer
    filterset_class = SamplePageFilter

    @extend_schema(request=KeepSerializer, responses={201: SamplePageSerializer})
    @repeatable
    def create(self, request: Request) -> Response:
        """Store a sample page without its cookies.

        422 `not_fetched` when the URL returned no page; 409 `too_many_samples`.
        """
        serializer = KeepSerializer(data=request.data, context={"request": request})
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        project: Project = values["project"]
        require_role(request.user, project.pk, Role.EDITOR)
        bound = shared_request_store().biz(project.pk, values["biz"])
        fetched = "url" in values
        page = (
            fetch_page(project=project, biz=bound.settings, url=values["url"])
            if fetched
            else page_given(values["page"])
        )
        sample = keep_page(
            project=project,
            biz=bound.name,
            rule=values["rule"],
            page=page,
            fetched=fetched,
            actor=self.person,
        )
        return self.answer(sample, http_status=status.HTTP_201_CREATED)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Delete a sample page."""
        drop_page(sample=self.get_object(), actor=self.person)
        return Response(status=status.HTTP_204_NO_CONTENT)
