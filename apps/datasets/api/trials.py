"""Trials of images over REST."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import WriteViewSet
from apps.access.api.fields import KnownFields
from apps.access.api.filters import FilterSet, IdFilter
from apps.access.api.idempotency import idempotent
from apps.access.states import Role
from apps.datasets.services import trials as service
from apps.jobs.models import ImageTrial, Job
from apps.jobs.states import TrialState
from apps.projects.models import Image


class ImageTrialFilter(FilterSet):
    """Filter of trials by job and state."""

    job = IdFilter(field_name="job_id")
    state = django_filters.ChoiceFilter(choices=TrialState.choices)

    class Meta:
        model = ImageTrial
        fields: ClassVar[list[str]] = []


class ImageTrialSerializer(KnownFields, serializers.ModelSerializer[ImageTrial]):
    """Run of a job with another image on the pages of an earlier run, compared with that run."""

    job = serializers.PrimaryKeyRelatedField(queryset=Job.objects.all())
    image = serializers.PrimaryKeyRelatedField(queryset=Image.objects.available())
    result = serializers.DictField(
        read_only=True,
        help_text=_(
            "items, requests, failed and seconds as [recorded run, trial]; added, removed, changed "
            "and equal items by key; exceptions that the recorded run does not have; excesses: "
            "limits of the job that were exceeded, in percent."
        ),
    )

    class Meta:
        model = ImageTrial
        fields = (
            "id",
            "job",
            "image",
            "image_digest",
            "recorded_run",
            "run",
            "state",
            "reason",
            "result",
            "created_at",
            "created_by",
            "ended_at",
            "activated_at",
            "activated_by",
            "note",
        )
        read_only_fields = (
            "image_digest",
            "recorded_run",
            "run",
            "state",
            "reason",
            "created_at",
            "created_by",
            "ended_at",
            "activated_at",
            "activated_by",
            "note",
        )

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        """Refuse an image of another project."""
        if values["image"].project_id != values["job"].project_id:
            raise serializers.ValidationError({"image": [_("The image is of another project.")]})
        return values


class ActivationSerializer(KnownFields, serializers.Serializer[Any]):
    """Why an image is used whose trial was not passed."""

    note = serializers.CharField(required=False, default="", allow_blank=True, max_length=2000)


@extend_schema_view(
    list=extend_schema(summary="Trials of images"),
    create=extend_schema(summary="Try an image on the pages of the last recorded run"),
    retrieve=extend_schema(summary="One trial with its result"),
)
class ImageTrialViewSet(WriteViewSet[ImageTrial]):
    """Trials of images on recorded pages; operators start them, editors activate images."""

    queryset = ImageTrial.objects.select_related("job__project", "image")
    serializer_class = ImageTrialSerializer
    filterset_class = ImageTrialFilter
    http_method_names = ["get", "post"]
    required_roles = {"create": Role.OPERATOR, "activate": Role.EDITOR}

    def create_object(self, values: dict[str, Any]) -> ImageTrial:
        """Start a trial; 409 if no run of the job has kept pages."""
        return service.start_trial(
            job=values["job"], image=values["image"], actor=self.person, now=timezone.now()
        )

    @extend_schema(
        summary="Use the image of a trial",
        request=ActivationSerializer,
        responses=ImageTrialSerializer,
    )
    @action(detail=True, methods=["post"])
    @idempotent
    def activate(self, request: Request, pk: str | None = None) -> Response:
        """Make the image that of the job; 422 without a note if the trial was not passed."""
        trial = self.get_object()
        asked = ActivationSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        return self.answer(
            service.activate_trial(
                trial=trial,
                actor=self.person,
                note=asked.validated_data["note"],
                now=timezone.now(),
            )
        )
