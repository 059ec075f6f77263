"""Serializers of configurations, versions, activations and roll-outs."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request

from apps.access.api.fields import VisibleRelatedField
from apps.access.services import has_role
from apps.access.states import Role
from apps.configcenter.engine.plain import MAX_BYTES
from apps.configcenter.models import MAX_NOTE, Activation, Configuration, ConfigVersion
from apps.configcenter.queries import RolloutCount, rollouts_of
from apps.configcenter.services import shown_by


class ConfigKindSerializer(serializers.Serializer[Any]):
    """A kind of configuration."""

    name = serializers.CharField()
    title = serializers.CharField()


class ConfigRunnerSerializer(serializers.Serializer[Any]):
    """A living process and the version that it runs."""

    kind = serializers.CharField(help_text=_("Kind of process, for example router."))
    name = serializers.CharField()
    host = serializers.CharField()
    pid = serializers.IntegerField()
    number = serializers.IntegerField(help_text=_("Version that the process runs; 0: none."))
    applied_at = serializers.DateTimeField(allow_null=True)
    problem = serializers.CharField(help_text=_("Why the process does not run the active version."))
    current = serializers.BooleanField(help_text=_("true if the process runs the active version."))


class ConfigTallySerializer(serializers.Serializer[Any]):
    """Roll-out of the active version: ``on`` of ``of`` processes run it."""

    on = serializers.IntegerField()
    of = serializers.IntegerField()


class ConfigurationSerializer(serializers.ModelSerializer[Configuration]):
    """The configuration of one kind in one project, or of the platform."""

    project = serializers.IntegerField(
        source="project_id", read_only=True, allow_null=True, help_text=_("null: the platform.")
    )
    newest = serializers.IntegerField(help_text=_("Number of the newest version; 0: none."))
    active = serializers.IntegerField(
        source="active.number",
        allow_null=True,
        default=None,
        read_only=True,
        help_text=_("number of the active version"),
    )
    running = serializers.SerializerMethodField()

    class Meta:
        model = Configuration
        fields = ("id", "kind", "project", "newest", "active", "running", "changed_at")
        read_only_fields = fields

    @extend_schema_field(ConfigTallySerializer)
    def get_running(self, row: Configuration) -> dict[str, Any]:
        """Number of processes that run the active version."""
        rollout_or_none = self.context.get("rollouts", {}).get(row.pk)
        rollout: RolloutCount = (
            rollout_or_none if rollout_or_none is not None else rollouts_of([row])[row.pk]
        )
        return dict(ConfigTallySerializer(rollout).data)


class ConfigVersionSerializer(serializers.ModelSerializer[ConfigVersion]):
    """A version without its data."""

    kind = serializers.CharField(source="configuration.kind", read_only=True)
    project = serializers.IntegerField(
        source="configuration.project_id",
        read_only=True,
        allow_null=True,
        help_text=_("null: the platform."),
    )
    active = serializers.SerializerMethodField(help_text=_("true for the active version."))

    class Meta:
        model = ConfigVersion
        fields = (
            "id",
            "configuration",
            "kind",
            "project",
            "number",
            "summary",
            "digest",
            "author",
            "author_label",
            "note",
            "created_at",
            "active",
        )
        read_only_fields = fields

    def get_active(self, version: ConfigVersion) -> bool:
        """Compare with the configuration that was loaded with the version."""
        return version.configuration.active_id == version.pk


class ConfigVersionDetailSerializer(ConfigVersionSerializer):
    """A version with its data; secret values are masked for callers who may not edit."""

    data = serializers.SerializerMethodField()  # type: ignore[assignment]  # the wire name is fixed

    class Meta(ConfigVersionSerializer.Meta):
        fields = (*ConfigVersionSerializer.Meta.fields, "data")  # type: ignore[assignment]
        read_only_fields = fields  # type: ignore[assignment]

    def get_data(self, version: ConfigVersion) -> dict[str, Any]:
        """Return the data as the caller's role may see it."""
        return data_for(self.context.get("request"), version)


class ConfigFileSerializer(serializers.Serializer[Any]):
    """A version in the text form of its kind; ``text`` can be edited and saved again."""

    text = serializers.CharField()


def data_for(request: Request | None, version: ConfigVersion) -> dict[str, Any]:
    """Data of the version; secret values are masked for callers who may not edit."""
    project = version.configuration.project_id
    if request is not None and has_role(request.user, project, Role.EDITOR):
        return version.data
    return shown_by(version.configuration.kind).public(version.data)


class ConfigSavedSerializer(serializers.Serializer[Any]):
    """The version that holds the saved data: a new one, or the newest if it is equal."""

    version = ConfigVersionDetailSerializer()
    created = serializers.BooleanField(help_text=_("false: the newest version has the same data."))
    warnings = serializers.ListField(child=serializers.CharField())


class ConfigSaveSerializer(serializers.Serializer[Any]):
    """Data to save: ``data``, or ``text`` in the text form of the kind."""

    kind = serializers.CharField(max_length=32)
    project = VisibleRelatedField(
        queryset=Configuration.objects.none(),
        allow_null=True,
        help_text=_("null: the platform, for kinds with a platform configuration."),
    )
    data = serializers.DictField(required=False)  # type: ignore[assignment]
    text = serializers.CharField(
        required=False, max_length=MAX_BYTES, trim_whitespace=False, allow_blank=True
    )
    note = serializers.CharField(max_length=MAX_NOTE, allow_blank=True, default="")
    based_on = serializers.IntegerField(
        min_value=0,
        max_value=2**31 - 1,
        allow_null=True,
        default=None,
        help_text=_("Newest version known to the caller; 0: none. 409 if a newer one exists."),
    )
    activate = serializers.BooleanField(
        default=False, help_text=_("Activate the version in the same transaction.")
    )

    def get_fields(self) -> dict[str, Any]:
        """Set the project choices here: the project model is in an app above this one."""
        fields: dict[str, Any] = super().get_fields()
        fields["project"].queryset = apps.get_model("projects", "Project")._default_manager.all()
        return fields

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require exactly one of ``data`` and ``text``."""
        if ("data" in attrs) == ("text" in attrs):
            raise serializers.ValidationError(_("Give either data or text."))
        return attrs


class ConfigTrialSerializer(serializers.Serializer[Any]):
    """Data to check: ``data``, or ``text`` in the text form of the kind."""

    data = serializers.DictField(default=dict)  # type: ignore[assignment]
    text = serializers.CharField(
        required=False, max_length=MAX_BYTES, trim_whitespace=False, allow_blank=True
    )


class ConfigSwitchSerializer(serializers.Serializer[Any]):
    """Note of an activation, and the version that the caller believes to be active."""

    note = serializers.CharField(max_length=MAX_NOTE, allow_blank=True, default="")
    instead_of = serializers.IntegerField(
        min_value=0,
        max_value=2**31 - 1,
        required=False,
        help_text=_("Active version known to the caller; 0: none. 409 if another one is active."),
    )


class ConfigRevertSerializer(ConfigSwitchSerializer):
    """Version to revert to."""

    to = serializers.IntegerField(
        min_value=1,
        max_value=2**31 - 1,
        allow_null=True,
        default=None,
        help_text=_("Number of a previously active version. Default: the one active before."),
    )


class ConfigActivationSerializer(serializers.ModelSerializer[Activation]):
    """A change of the active version."""

    kind = serializers.CharField(source="configuration.kind", read_only=True)
    project = serializers.IntegerField(
        source="configuration.project_id",
        read_only=True,
        allow_null=True,
        help_text=_("null: the platform."),
    )
    number = serializers.IntegerField(
        source="version.number",
        allow_null=True,
        default=None,
        read_only=True,
        help_text=_("null: no version is active from then on."),
    )
    previous = serializers.IntegerField(
        source="previous.number", allow_null=True, default=None, read_only=True
    )

    class Meta:
        model = Activation
        fields = (
            "id",
            "configuration",
            "kind",
            "project",
            "version",
            "number",
            "previous",
            "actor",
            "actor_label",
            "note",
            "at",
        )
        read_only_fields = fields


class ConfigChangeSerializer(serializers.Serializer[Any]):
    """One difference between two versions."""

    place = serializers.CharField(help_text=_("Place, for example outbound[news].retry_limits."))
    what = serializers.ChoiceField(choices=["added", "removed", "changed", "moved"])
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)


class ConfigProblemSerializer(serializers.Serializer[Any]):
    """A problem that the kind reports."""

    place = serializers.CharField()
    code = serializers.CharField(help_text=_("Stable code for programs."))
    text = serializers.CharField()
    warning = serializers.BooleanField(help_text=_("true if the data may be saved nevertheless."))


class ConfigCheckedSerializer(serializers.Serializer[Any]):
    """Problems of the data, and its differences from the newest version."""

    valid = serializers.BooleanField(help_text=_("true if the data could be saved."))
    problems = ConfigProblemSerializer(many=True)
    changes = ConfigChangeSerializer(many=True)


class ConfigDiffSerializer(serializers.Serializer[Any]):
    """Differences between the versions ``old`` and ``new``; number 0 is the empty version."""

    old = serializers.IntegerField()
    new = serializers.IntegerField()
    changes = ConfigChangeSerializer(many=True)
