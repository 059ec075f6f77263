"""REST endpoints of subscriptions to runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.http import Http404
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView, WriteViewSet
from apps.access.api.fields import KnownFields, VisibleRelatedField
from apps.access.api.filters import FilterSet, IdFilter
from apps.access.api.idempotency import idempotent
from apps.access.models import User
from apps.access.states import Role
from apps.alerts.errors import NoSuchChannel
from apps.alerts.models import RunSubscription
from apps.alerts.services.recipients import channels_named, recipient_name
from apps.alerts.services.subscriptions import notify_me, subscribe, unsubscribe
from apps.jobs.models import Job
from apps.projects.models import Project

WHEN = [
    ("failure", _("failures, by the incidents of alert rules")),
    ("end", _("each end of a run")),
]
OFF = "off"


def when_of(row: RunSubscription | None) -> str:
    """Return what a subscription notifies of, in REST's terms."""
    return OFF if row is None else "end" if row.every_end else "failure"


class RunSubscriptionSerializer(KnownFields, serializers.ModelSerializer[RunSubscription]):
    """Subscription of a channel, or a person, to runs of a job, a project or all projects."""

    project = VisibleRelatedField(
        queryset=Project.objects.all(),
        allow_null=True,
        required=False,
        default=None,
        help_text=_("null: the project of the job, or without a job all projects."),
    )
    job = VisibleRelatedField(
        queryset=Job.objects.all(), allow_null=True, required=False, default=None
    )
    channel = serializers.CharField(
        max_length=151,
        help_text=_("Name of the channel, or @ and the name of a user, as in alert rules."),
    )
    when = serializers.ChoiceField(choices=WHEN, default="failure")

    class Meta:
        model = RunSubscription
        fields = ("id", "project", "job", "channel", "when", "created_at")
        read_only_fields = ("created_at",)
        # Uniqueness is kept by the service, which changes an existing one.
        validators: ClassVar[list[Any]] = []

    def to_representation(self, instance: RunSubscription) -> dict[str, Any]:
        """Return the row with the name of its recipient."""
        return {
            "id": instance.pk,
            "project": instance.project_id,
            "job": instance.job_id,
            "channel": recipient_name(instance.channel),
            "when": when_of(instance),
            "created_at": self.fields["created_at"].to_representation(instance.created_at),
        }


class RunSubscriptionFilter(FilterSet):
    """Subscriptions: ``?project=1&job=7&channel=3``."""

    project = IdFilter(field_name="project_id")
    job = IdFilter(field_name="job_id")
    channel = IdFilter(field_name="channel_id")

    class Meta:
        model = RunSubscription
        fields: ClassVar = ["project", "job", "channel"]


@extend_schema_view(
    list=extend_schema(summary="List subscriptions to runs"),
    create=extend_schema(summary="Subscribe a channel to runs"),
    retrieve=extend_schema(summary="Get a subscription"),
    destroy=extend_schema(summary="End a subscription"),
)
class RunSubscriptionViewSet(WriteViewSet[RunSubscription]):
    """Subscriptions to runs. Managed by editors; the same scope again changes ``when``."""

    http_method_names = ["get", "post", "delete", "head"]
    queryset = RunSubscription.objects.select_related("channel__person")
    serializer_class = RunSubscriptionSerializer
    filterset_class = RunSubscriptionFilter

    def project_of_input(self, values: Mapping[str, Any]) -> int | None:
        """Return the project of the job, or the named one."""
        job, project = values.get("job"), values.get("project")
        if job is not None:
            return int(job.project_id)
        return None if project is None else int(project.pk)

    def create_object(self, values: dict[str, Any]) -> RunSubscription:
        """Subscribe; 422 if the project has no such channel or person."""
        project_id, name = self.project_of_input(values), values["channel"]
        channel = channels_named(project_id, [name]).get(name)
        if channel is None:
            raise NoSuchChannel(fields={"channel": [NoSuchChannel.detail]})
        return subscribe(
            channel=channel,
            project_id=project_id,
            job=values["job"],
            every_end=values["when"] == "end",
            actor=self.person,
        )

    def delete_object(self, obj: RunSubscription) -> None:
        """End a subscription."""
        unsubscribe(subscription=obj, actor=self.person)


class NotifyMeSerializer(serializers.Serializer[Any]):
    """Whether the caller is notified of a job's runs, and where."""

    when = serializers.ChoiceField(choices=[*WHEN, (OFF, _("off"))])
    address = serializers.EmailField(
        required=False, help_text=_("Stored if your account has no e-mail address.")
    )


class NotifyMeView(ApiView):
    """Mails to the caller about the runs of a job; viewers may switch them for themselves."""

    @extend_schema(
        operation_id="jobs_notify_me_retrieve",
        summary="Whether you are notified of a job",
        responses=NotifyMeSerializer,
    )
    def get(self, request: Request, job: int) -> Response:
        """Return what the caller is notified of."""
        return _answer(self.person, _visible_job(self.person, job))

    @extend_schema(
        operation_id="jobs_notify_me_create",
        summary="Notify me of a job",
        request=NotifyMeSerializer,
        responses=NotifyMeSerializer,
    )
    @idempotent
    def post(self, request: Request, job: int) -> Response:
        """Be notified of failures, of each end, or no longer."""
        visible = _visible_job(self.person, job)
        body = NotifyMeSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        when = body.validated_data["when"]
        notify_me(
            user=self.person,
            job=visible,
            every_end=None if when == OFF else when == "end",
            address=body.validated_data.get("address", ""),
        )
        return _answer(self.person, visible)


def _visible_job(person: User, pk: int) -> Job:
    row: Job | None = Job.objects.visible_to(person, Role.VIEWER).filter(pk=pk).first()
    if row is None:
        raise Http404
    return row


def _answer(person: User, job: Job) -> Response:
    row = RunSubscription.objects.filter(channel__person=person, job=job).first()
    return Response({"when": when_of(row), "address": person.email})
