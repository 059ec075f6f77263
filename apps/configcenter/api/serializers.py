"""JSON of configurations, versions and who runs them."""

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
from apps.configcenter.queries import RolloutCount, tallies_of
from apps.configcenter.services import shown_by


class ConfigKindSerializer(serializers.Serializer[Any]):
    """A kind of configuration."""

    name = serializers.CharField()
    title = serializers.CharField()


class ConfigRunnerSerializer(serializers.Serializer[Any]):
    """One living process, and what it runs."""

    kind = serializers.CharField(help_text=_("of process, such as router"))
    name = serializers.CharField()
    host = serializers.CharField()
    pid = serializers.IntegerField()
    number = serializers.IntegerField(help_text=_("the version it runs; 0: none"))
    applied_at = serializers.DateTimeField(allow_null=True)
    problem = serializers.CharField(help_text=_("why it does not run the active one"))
    current = serializers.BooleanField(help_text=_("it runs what is active"))


class ConfigTallySerializer(serializers.Serializer[Any]):
    """Seven of eight run the active version: ``on`` is 7, ``of`` 8."""

    on = serializers.IntegerField()
    of = serializers.IntegerField()


class ConfigurationSerializer(serializers.ModelSerializer[Configuration]):
    """The configuration of one kind in one project, or of the platform."""

    project = serializers.IntegerField(
        source="project_id",
        read_only=True,
        allow_null=True,
        help_text=_("null: of the platform"),
    )
    newest = serializers.IntegerField(help_text=_("number of the newest version; 0: none"))
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
        """How many processes run the active one."""
        found = self.context.get("tallies", {}).get(row.pk)
        tally: RolloutCount = found if found is not None else tallies_of([row])[row.pk]
        return dict(ConfigTallySerializer(tally).data)


class ConfigVersionSerializer(serializers.ModelSerializer[ConfigVersion]):
    """A version without its data."""

    kind = serializers.CharField(source="configuration.kind", read_only=True)
    project = serializers.IntegerField(
        source="configuration.project_id",
        read_only=True,
        allow_null=True,
        help_text=_("null: of the platform"),
    )
    active = serializers.SerializerMethodField(help_text=_("Whether it is the active one."))

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
        """By the configuration that came with it."""
        return version.configuration.active_id == version.pk


class ConfigVersionDetailSerializer(ConfigVersionSerializer):
    """A version with its data; what is secret in it is for those who may edit."""

    data = serializers.SerializerMethodField()  # type: ignore[assignment]  # the wire name is fixed

    class Meta(ConfigVersionSerializer.Meta):
        fields = (*ConfigVersionSerializer.Meta.fields, "data")  # type: ignore[assignment]
        read_only_fields = fields  # type: ignore[assignment]

    def get_data(self, version: ConfigVersion) -> dict[str, Any]:
        """Return the data as the caller's role may see it."""
        return data_for(self.context.get("request"), version)


class ConfigFileSerializer(serializers.Serializer[Any]):
    """A version as a file of its kind, which can be saved again as ``text``."""

    text = serializers.CharField()


def data_for(request: Request | None, version: ConfigVersion) -> dict[str, Any]:
    """The data of a version; what is secret in it is for those who may edit."""
    project = version.configuration.project_id
    if request is not None and has_role(request.user, project, Role.EDITOR):
        return version.data
    return shown_by(version.configuration.kind).public(version.data)


class ConfigSavedSerializer(serializers.Serializer[Any]):
    """The version that holds the data now."""

    version = ConfigVersionDetailSerializer()
    created = serializers.BooleanField(help_text=_("false: the newest version was equal"))
    warnings = serializers.ListField(child=serializers.CharField())


class ConfigSaveSerializer(serializers.Serializer[Any]):
    """What to save: ``data``, or ``text`` in the form of the kind's files."""

    kind = serializers.CharField(max_length=32)
    project = VisibleRelatedField(
        queryset=Configuration.objects.none(),
        allow_null=True,
        help_text=_("null: of the platform, for kinds that it has"),
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
        help_text=_("number of the newest version you know, 0 for none; 409 if there is another"),
    )
    activate = serializers.BooleanField(
        default=False, help_text=_("and activate it in the same transaction")
    )

    def get_fields(self) -> dict[str, Any]:
        """The projects come from the app above."""
        fields: dict[str, Any] = super().get_fields()
        fields["project"].queryset = apps.get_model("projects", "Project")._default_manager.all()
        return fields

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """One of the two forms."""
        if ("data" in attrs) == ("text" in attrs):
            raise serializers.ValidationError(_("Give either data or text."))
        return attrs


class ConfigTrialSerializer(serializers.Serializer[Any]):
    """What to try: ``data``, or ``text`` in the form of the kind's files."""

    data = serializers.DictField(default=dict)  # type: ignore[assignment]
    text = serializers.CharField(
        required=False, max_length=MAX_BYTES, trim_whitespace=False, allow_blank=True
    )


class ConfigSwitchSerializer(serializers.Serializer[Any]):
    """Why, and what the caller believes to be active."""

    note = serializers.CharField(max_length=MAX_NOTE, allow_blank=True, default="")
    instead_of = serializers.IntegerField(
        min_value=0,
        max_value=2**31 - 1,
        required=False,
        help_text=_("number of the version you see active, 0 for none; 409 if it is another"),
    )


class ConfigRevertSerializer(ConfigSwitchSerializer):
    """Where to go back to."""

    to = serializers.IntegerField(
        min_value=1,
        max_value=2**31 - 1,
        allow_null=True,
        default=None,
        help_text=_("a version that was active once; without it the one active before"),
    )


class ConfigActivationSerializer(serializers.ModelSerializer[Activation]):
    """One change of what is active."""

    kind = serializers.CharField(source="configuration.kind", read_only=True)
    project = serializers.IntegerField(
        source="configuration.project_id",
        read_only=True,
        allow_null=True,
        help_text=_("null: of the platform"),
    )
    number = serializers.IntegerField(
        source="version.number",
        allow_null=True,
        default=None,
        read_only=True,
        help_text=_("null: nothing is active from then on"),
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
    """One difference."""

    place = serializers.CharField(help_text=_("such as outbound[news].retry_limits"))
    what = serializers.ChoiceField(choices=["added", "removed", "changed", "moved"])
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)


class ConfigProblemSerializer(serializers.Serializer[Any]):
    """Something the kind has found."""

    place = serializers.CharField()
    code = serializers.CharField(help_text=_("stable, for programs"))
    text = serializers.CharField()
    warning = serializers.BooleanField(help_text=_("may be saved and run all the same"))


class ConfigCheckedSerializer(serializers.Serializer[Any]):
    """What is wrong with it, and what would change from the newest version."""

    valid = serializers.BooleanField(help_text=_("it could be saved"))
    problems = ConfigProblemSerializer(many=True)
    changes = ConfigChangeSerializer(many=True)


class ConfigDiffSerializer(serializers.Serializer[Any]):
    """What changes from ``old`` to ``new``, both numbers of versions; 0 is the empty one."""

    old = serializers.IntegerField()
    new = serializers.IntegerField()
    changes = ConfigChangeSerializer(many=True)
