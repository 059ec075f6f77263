"""REST serializers of projects."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from apps.access.api.fields import KnownFields
from apps.projects.models import DeletedProject, Project, validate_networks
from apps.projects.models.validators import validate_webhook_secret
from apps.projects.services.webhook_setup import webhook_address
from apps.runtime.api import SecretCharField

MAX_TAG_INPUT = 1000


class ProjectSerializer(KnownFields, serializers.ModelSerializer[Project]):
    """Project. Secrets are write-only; `*_set` is true if the secret is stored."""

    allowed_networks = serializers.ListField(
        child=serializers.CharField(max_length=60), required=False, validators=[validate_networks]
    )
    git_password = SecretCharField(
        max_length=4096, help_text=_("Password or token; encrypted, write-only.")
    )
    registry_password = SecretCharField(
        max_length=4096, help_text=_("Password or token; encrypted, write-only.")
    )
    webhook_secret = SecretCharField(
        allow_blank=False,
        max_length=500,
        validators=[validate_webhook_secret],
        help_text=_("Signs deliveries; generated with the project."),
    )
    git_password_set = serializers.SerializerMethodField(help_text=_("Whether it is set."))
    registry_password_set = serializers.SerializerMethodField(help_text=_("Whether it is set."))
    webhook_secret_set = serializers.SerializerMethodField(help_text=_("Whether it is set."))
    webhook_address = serializers.SerializerMethodField(help_text=_("Address for deliveries."))

    class Meta:
        model = Project
        fields = (
            "id",
            "name",
            "slug",
            "description",
            "allowed_networks",
            "git_url",
            "git_username",
            "git_password",
            "git_password_set",
            "default_branch",
            "tag_template",
            "webhook_address",
            "webhook_secret",
            "webhook_secret_set",
            "builds_enabled",
            "dockerfile",
            "build_script",
            "build_arguments",
            "build_timeout_seconds",
            "max_image_bytes",
            "registry_url",
            "registry_repository",
            "registry_username",
            "registry_password",
            "registry_password_set",
            "keep_days",
            "keep_runs",
            "keep_bytes",
            "created_at",
            "updated_at",
        )
        read_only_fields = ("created_at", "updated_at")
        extra_kwargs = {"build_script": {"trim_whitespace": False}}

    def validate_name(self, value: str) -> str:
        """Reject the name of another project; deleted projects are ignored."""
        return self._free("name", value)

    def validate_slug(self, value: str) -> str:
        """Reject the slug of another project; deleted projects are ignored."""
        return self._free("slug", value)

    def _free(self, name: str, value: str) -> str:
        others = Project.objects.filter(**{name: value})
        if isinstance(self.instance, Project):
            others = others.exclude(pk=self.instance.pk)
        if others.exists():
            raise serializers.ValidationError(
                _("Another project already uses this value."), "unique"
            )
        return value

    def get_git_password_set(self, project: Project) -> bool:
        """Whether a git password is stored; it is not decrypted."""
        return project.has_secret("git_password")

    def get_registry_password_set(self, project: Project) -> bool:
        """Whether a registry password is stored; it is not decrypted."""
        return project.has_secret("registry_password")

    def get_webhook_secret_set(self, project: Project) -> bool:
        """Whether a webhook secret is stored; it is not decrypted."""
        return project.has_secret("webhook_secret")

    def get_webhook_address(self, project: Project) -> str:
        """URL of the webhook, based on ``PUBLIC_URL``."""
        return webhook_address(project)


class TagPreviewSerializer(serializers.Serializer[Any]):
    """Parts of a parsed tag, or the reason why it is ignored."""

    tag = serializers.CharField()
    commit = serializers.CharField(help_text=_("As stated by the git server."))
    fits = serializers.BooleanField()
    release = serializers.CharField()
    name = serializers.CharField()
    version = serializers.CharField()
    git_tag = serializers.CharField(help_text=_("The tag in git, which allows no colons."))
    image = serializers.CharField(help_text=_("Name of the image."))
    code = serializers.CharField(help_text=_("Stable code of the reason."))
    reason = serializers.CharField(help_text=_("Why the tag does not fit."))


class TagQuestionSerializer(KnownFields, serializers.Serializer[Any]):
    """Tag to preview, by the template of the project or another template."""

    tag = serializers.CharField(
        max_length=MAX_TAG_INPUT, trim_whitespace=False, allow_blank=True, default=""
    )
    template = serializers.CharField(
        max_length=MAX_TAG_INPUT, trim_whitespace=False, allow_blank=True, required=False
    )


class ConnectionSerializer(serializers.Serializer[Any]):
    """Result of a connection to the git server."""

    count = serializers.IntegerField(help_text=_("Number of tags on the server."))
    fitting = serializers.IntegerField(help_text=_("Number of tags that fit the template."))
    tags = TagPreviewSerializer(many=True, help_text=_("The first tags."))


class SetupTextSerializer(serializers.Serializer[Any]):
    """Setup instructions for one kind of sender."""

    name = serializers.CharField(help_text=_("github, gitlab, gitea, curl, registry"))
    title = serializers.CharField()
    text = serializers.CharField(help_text=_("Text to copy."))


class WebhookSerializer(serializers.Serializer[Any]):
    """Webhook URL and setup instructions; the secret only if requested."""

    address = serializers.CharField()
    secret = serializers.CharField(allow_null=True)
    texts = SetupTextSerializer(many=True)


class RefreshedSerializer(serializers.Serializer[Any]):
    """Result of listing the images of the registry."""

    added = serializers.ListField(child=serializers.CharField())
    moved = serializers.ListField(
        child=serializers.CharField(), help_text=_("`latest`, if it is another image now.")
    )
    known = serializers.ListField(child=serializers.CharField())
    differ = serializers.ListField(
        child=serializers.CharField(), help_text=_("Listed with another digest and not updated.")
    )


class DeletedProjectSerializer(serializers.ModelSerializer[DeletedProject]):
    """Deleted project, with the time until which it can be restored."""

    ends_at = serializers.DateTimeField(read_only=True, help_text=_("Time of the final deletion."))

    class Meta:
        model = DeletedProject
        fields = ("id", "name", "slug", "deleted_at", "deleted_by", "ends_at")
        read_only_fields = fields
