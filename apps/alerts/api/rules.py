"""REST endpoints of alert rules: current state, available sources, and preview.

Rules are saved as versions of the configuration ``alerts``.
"""

from __future__ import annotations

from typing import Any, Final

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.access.api.fields import VisibleRelatedField
from apps.access.api.pagination import PageQuerySerializer, PageSerializer, page_in
from apps.access.errors import RoleRequired
from apps.access.services import has_role
from apps.access.states import Role
from apps.alerts.engine.events import all_sources
from apps.alerts.engine.rules import SEVERITIES
from apps.alerts.queries.rules import RuleState, RuleStatus, active_rulebooks, rule_statuses
from apps.alerts.services.preview import DAY, preview, rule_from
from apps.projects.models import Project

LONGEST: Final = 7 * DAY


class AlertRuleSerializer(serializers.Serializer[Any]):
    """Active rule with its current state."""

    name = serializers.CharField(source="rule.name")
    title = serializers.CharField(source="rule.title", help_text=_("Empty unless built in."))
    project = serializers.IntegerField(
        allow_null=True, help_text=_("null: a platform rule, which also applies to projects.")
    )
    builtin = serializers.BooleanField(source="rule.builtin")
    version = serializers.IntegerField(help_text=_("Configuration version; 0: built in."))
    series = serializers.CharField(source="rule.series")
    label = serializers.CharField(source="rule.label")  # type: ignore[assignment]  # DRF has one
    event = serializers.CharField(source="rule.event")
    match = serializers.DictField(source="rule.match", child=serializers.CharField())
    when = serializers.SerializerMethodField()
    severity = serializers.ChoiceField(source="rule.severity", choices=SEVERITIES)
    tell = serializers.SerializerMethodField()
    state = serializers.ChoiceField(choices=[state.value for state in RuleState])
    value = serializers.FloatField(
        allow_null=True, help_text=_("Latest value of the series in the worst state.")
    )
    value_label = serializers.CharField(
        source="label", help_text=_("Label of the series in the worst state.")
    )
    watched = serializers.IntegerField(help_text=_("Series in visible projects."))
    open_count = serializers.IntegerField(help_text=_("Open incidents in visible projects."))
    muted_until = serializers.DateTimeField(allow_null=True)

    def get_when(self, row: RuleStatus) -> dict[str, float]:
        """Return the condition in configuration format."""
        return row.rule.when.shown()

    def get_tell(self, row: RuleStatus) -> list[str]:
        """Return channel names; the platform's only to users with a role on the platform."""
        may = has_role(self.context["person"], row.project, Role.VIEWER)
        return list(row.rule.tell) if may else []


class AlertRulesSerializer(PageSerializer):
    """Rules visible to the caller, platform rules first, then by project and name."""

    results = AlertRuleSerializer(many=True)


class AlertSourceSerializer(serializers.Serializer[Any]):
    """Event or condition that rules may watch by ``event``."""

    name = serializers.CharField()
    title = serializers.CharField()
    lasting = serializers.BooleanField(
        help_text=_("true: a condition, which lasts; false: an event, which happens once.")
    )
    facts = serializers.ListField(child=serializers.CharField())


class AlertSourcesSerializer(serializers.Serializer[Any]):
    """All sources by name."""

    results = AlertSourceSerializer(many=True)


class PreviewQuestionSerializer(serializers.Serializer[Any]):
    """Rule in configuration format, with its project."""

    project = VisibleRelatedField(
        queryset=Project.objects.all(),
        allow_null=True,
        help_text=_("null: a platform rule, which watches all projects."),
    )
    rule = serializers.DictField(help_text=_("Entry of rules, see docs/alerts.md."))
    seconds = serializers.IntegerField(
        min_value=60, max_value=LONGEST, default=DAY, help_text=_("Period to check in seconds.")
    )


class WouldFindSerializer(serializers.Serializer[Any]):
    """Incident that the rule would have opened."""

    project = serializers.IntegerField(allow_null=True)
    key = serializers.CharField(allow_blank=True)
    began_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True, help_text=_("null: still open."))
    times = serializers.IntegerField()
    value = serializers.FloatField(allow_null=True, help_text=_("Worst value during the incident."))
    facts = serializers.DictField(allow_null=True)


class RulePreviewSerializer(serializers.Serializer[Any]):
    """Incidents that the rule would have opened, newest first."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    watched = serializers.IntegerField(help_text=_("Matching series or events; 0: unknown name."))
    now_only = serializers.BooleanField(
        help_text=_("true for a condition: its past states are not stored.")
    )
    more = serializers.BooleanField(help_text=_("true if the result is truncated."))
    found = WouldFindSerializer(many=True)


class AlertRulesView(ApiView):
    """Active alert rules."""

    @extend_schema(
        operation_id="alert_rules_list",
        parameters=[PageQuerySerializer],
        responses=AlertRulesSerializer,
    )
    def get(self, request: Request) -> Response:
        """List built-in, platform and visible project rules with their current state."""
        rows, after = page_in(
            request,
            rule_statuses(self.person, now=timezone.now()),
            key=lambda each: (each.project or 0, each.rule.name, each.rule.builtin),
        )
        context = {"person": self.person}
        page = {"results": rows, "next": after}
        return Response(AlertRulesSerializer(page, context=context).data)


class AlertSourcesView(ApiView):
    """Event and condition sources."""

    @extend_schema(operation_id="alert_sources_list", responses=AlertSourcesSerializer)
    def get(self, request: Request) -> Response:
        """List events and conditions, with the facts that ``match`` may name."""
        rows = [
            {
                "name": source.name,
                "title": str(source.title),
                "lasting": hasattr(source, "now"),
                "facts": list(source.facts),
            }
            for source in all_sources()
        ]
        return Response(AlertSourcesSerializer({"results": rows}).data)


class AlertPreviewView(ApiView):
    """Preview of a rule."""

    only_reads = True

    @extend_schema(
        operation_id="alert_rules_preview",
        request=PreviewQuestionSerializer,
        responses=RulePreviewSerializer,
    )
    def post(self, request: Request) -> Response:
        """Preview the incidents of the last day, or of ``seconds``; opens and sends nothing."""
        serializer = PreviewQuestionSerializer(data=request.data, context={"request": request})
        serializer.is_valid(raise_exception=True)
        project = serializer.validated_data["project"]
        project_id = None if project is None else project.pk
        if not has_role(self.person, project_id, Role.VIEWER):
            raise RoleRequired
        known = active_rulebooks().of(project_id).quiet_hours
        result = preview(
            rule=rule_from(serializer.validated_data["rule"], known),
            project_id=project_id,
            now=timezone.now(),
            seconds=serializer.validated_data["seconds"],
        )
        return Response(RulePreviewSerializer(result).data)
