"""REST endpoints of job yields: history, current status and anomaly limits."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView, ReadViewSet
from apps.access.api.idempotency import idempotent
from apps.access.api.routers import api_path
from apps.access.models import User
from apps.access.services import require_role
from apps.access.states import Role
from apps.alerts.models import JobYield, YieldPolicy
from apps.alerts.queries.yields import JobYields, yields_of
from apps.alerts.services.yields import reset_baseline, set_policy
from apps.jobs.models import Job


class JobYieldSerializer(serializers.ModelSerializer[JobYield]):
    """Yield of one run with the baseline at that time."""

    class Meta:
        model = JobYield
        fields = [
            "id",
            "run",
            "state",
            "trigger",
            "started_at",
            "ended_at",
            "items",
            "pages",
            "success",
            "failed",
            "fields",
            "judged",
            "usual",
            "findings",
        ]
        read_only_fields = fields
        extra_kwargs = {
            "items": {"help_text": _("null: the run reports no items.")},
            "fields": {"help_text": _("Number of items with a value, by field.")},
            "judged": {"help_text": _("Compared with earlier runs, and part of later baselines.")},
            "usual": {
                "help_text": _(
                    "Baseline: low, middle and high number of items, number of runs, whether they "
                    "are of the same weekday, and usual share by field. Empty with too few runs."
                )
            },
            "findings": {
                "help_text": _("Anomalies of the kinds drop, rise, coverage and failures.")
            },
        }


class YieldPolicySerializer(serializers.ModelSerializer[YieldPolicy]):
    """Anomaly limits of a job; null disables one."""

    class Meta:
        model = YieldPolicy
        fields = [
            "enabled",
            "drop_below",
            "rise_above",
            "coverage_fall",
            "failures_rise",
            "stale_times",
            "learn_from",
        ]
        read_only_fields = ["learn_from"]


class FieldShareSerializer(serializers.Serializer[Any]):
    """Coverage of one field in the newest compared run."""

    name = serializers.CharField()
    share = serializers.FloatField(help_text=_("Share of items with a value, 0 to 1."))
    usual = serializers.FloatField(allow_null=True)
    fallen = serializers.BooleanField()


class YieldStandingSerializer(serializers.Serializer[Any]):
    """Current yield status of a job."""

    job = serializers.IntegerField()
    run = serializers.IntegerField(allow_null=True, help_text=_("Newest compared run."))
    findings = serializers.ListField(
        child=serializers.DictField(), help_text=_("Anomalies of that run and their start times.")
    )
    coverage = FieldShareSerializer(many=True)
    stale = serializers.BooleanField(help_text=_("true if the job no longer returns new items."))
    good_run = serializers.IntegerField(allow_null=True)
    good_at = serializers.DateTimeField(allow_null=True)
    usual_seconds = serializers.FloatField(
        allow_null=True, help_text=_("Usual time between two good runs.")
    )
    stale_at = serializers.DateTimeField(
        allow_null=True, help_text=_("Time when the job becomes stale without a good run.")
    )
    policy = YieldPolicySerializer()


class JobYieldViewSet(ReadViewSet[JobYield]):
    """Yields of one job's runs, newest first."""

    queryset = JobYield.objects.all()
    serializer_class = JobYieldSerializer

    def get_queryset(self) -> QuerySet[JobYield]:
        """Filter by the job in the URL."""
        rows = super().get_queryset()
        if getattr(self, "swagger_fake_view", False):
            return rows
        return rows.filter(job=_visible_job(self.person, self.kwargs["job"]))


class YieldStandingView(ApiView):
    """Yield status and anomaly limits of a job."""

    @extend_schema(operation_id="jobs_yield_standing_retrieve", responses=YieldStandingSerializer)
    def get(self, request: Request, job: int) -> Response:
        """Return current anomalies, field coverage, and whether the job is stale."""
        return _answer(_visible_job(self.person, job))

    @extend_schema(
        operation_id="jobs_yield_standing_partial_update",
        request=YieldPolicySerializer,
        responses=YieldStandingSerializer,
    )
    def patch(self, request: Request, job: int) -> Response:
        """Change the anomaly limits, given as fields of ``policy``. For editors."""
        visible = _visible_job(self.person, job)
        require_role(self.person, visible.project_id, Role.EDITOR)
        body = YieldPolicySerializer(data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        set_policy(job=visible, values=body.validated_data, actor=self.person)
        return _answer(visible)


class ResetBaselineView(ApiView):
    """Reset of a job's baseline, after an intended change of the site."""

    @extend_schema(
        operation_id="jobs_yield_standing_learn", request=None, responses=YieldStandingSerializer
    )
    @idempotent
    def post(self, request: Request, job: int) -> Response:
        """Reset the baseline: earlier runs are no longer compared. For editors."""
        visible = _visible_job(self.person, job)
        require_role(self.person, visible.project_id, Role.EDITOR)
        reset_baseline(job=visible, now=timezone.now(), actor=self.person)
        return _answer(visible)


def _visible_job(person: User, pk: int) -> Job:
    row: Job | None = Job.objects.visible_to(person).filter(pk=pk).first()
    if row is None:
        raise Http404
    return row


def _answer(job: Job) -> Response:
    yields: JobYields = yields_of(job, now=timezone.now())
    watch = yields.watch
    status = {
        "job": job.pk,
        "run": watch and watch.run,
        "findings": yields.findings,
        "coverage": yields.fields,
        "stale": yields.stale,
        "good_run": watch and watch.good_run,
        "good_at": watch and watch.good_at,
        "usual_seconds": watch and watch.usual_seconds,
        "stale_at": watch and watch.stale_at,
        "policy": yields.policy,
    }
    return Response(YieldStandingSerializer(status).data)


yields = JobYieldViewSet.as_view({"get": "list"})
addresses = [
    api_path("jobs/<int:job>/yields", yields, name="job-yields"),
    api_path("jobs/<int:job>/yields/standing", YieldStandingView.as_view(), name="job-standing"),
    api_path("jobs/<int:job>/yields/learn", ResetBaselineView.as_view(), name="job-reset-baseline"),
]
