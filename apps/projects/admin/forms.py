"""Admin form of a project: lists and objects as lines, sizes in MiB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminTextareaWidget

from apps.projects.models import Project
from apps.projects.models.validators import validate_build_arguments, validate_webhook_secret
from apps.runtime.fields import CLEAR

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Project]
else:
    _ModelForm = forms.ModelForm

MIB: Final = 1024 * 1024
SECRETS: Final = ("git_password", "webhook_secret", "registry_password")


class NetworksField(forms.JSONField):
    """Field for networks, one per line."""

    widget = UnfoldAdminTextareaWidget

    def prepare_value(self, value: Any) -> Any:
        """Return the networks as lines."""
        return "\n".join(map(str, value)) if isinstance(value, list) else value

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Return the entered text unchanged."""
        return data

    def to_python(self, value: Any) -> Any:
        """Parse lines, or accept a list."""
        if isinstance(value, list):
            return value
        return [line.strip() for line in (value or "").splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare the parsed lists."""
        return bool((initial or []) != self.to_python(data))


class BuildArgumentsField(forms.JSONField):
    """Field for build arguments, one ``NAME=value`` per line."""

    widget = UnfoldAdminTextareaWidget
    # An empty object is a valid value, not a missing one.
    empty_values = [None]

    def prepare_value(self, value: Any) -> Any:
        """Return the arguments as lines."""
        if isinstance(value, dict):
            return "\n".join(f"{name}={text}" for name, text in value.items())
        return value

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Return the entered text unchanged."""
        return data

    def to_python(self, value: Any) -> Any:
        """Parse lines, or accept an object. Raises ``ValidationError`` with the line number."""
        if isinstance(value, dict):
            return value
        arguments: dict[str, str] = {}
        for number, line in enumerate((value or "").splitlines(), 1):
            if not line.strip():
                continue
            name, equals, text = line.partition("=")
            params = {"line": number, "name": name.strip()[:60]}
            if not equals:
                raise forms.ValidationError(_("Line %(line)d: write NAME=value."), params=params)
            if name.strip() in arguments:
                raise forms.ValidationError(
                    _("Line %(line)d: %(name)s occurs twice."), params=params
                )
            arguments[name.strip()] = text
        validate_build_arguments(arguments)
        return arguments

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare the parsed objects; an invalid text counts as a change."""
        try:
            return bool((initial or {}) != self.to_python(data))
        except forms.ValidationError:
            return True


class MebibytesField(forms.IntegerField):
    """Field for a size in MiB, stored in bytes."""

    widget = UnfoldAdminIntegerFieldWidget

    def prepare_value(self, value: Any) -> Any:
        """Return stored bytes as MiB, entered text unchanged."""
        return value // MIB if isinstance(value, int) else value

    def clean(self, value: Any) -> Any:
        """Return the size in bytes."""
        number = super().clean(value)
        return None if number is None else number * MIB

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare values in MiB: an unchanged form must not round a size that was set over REST."""
        return super().has_changed(self.prepare_value(initial), data)


class ProjectForm(_ModelForm):
    """Form of a project, with the same validation as the REST API."""

    allowed_networks = NetworksField(
        label=_("Allowed networks"),
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4}),
        help_text=_(
            "Networks that downloads of this project may reach besides public addresses, "
            "one a line, such as 10.20.0.0/16."
        ),
    )
    build_arguments = BuildArgumentsField(
        label=_("Build arguments"),
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4, "spellcheck": "false"}),
        help_text=_("NAME=value, one a line; not for secrets, they stay readable in the image."),
    )
    build_script = forms.CharField(
        label=_("Build script"),
        required=False,
        strip=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 8, "spellcheck": "false"}),
        help_text=_("The text of a Dockerfile, used instead of the repository's own."),
    )
    max_image_bytes = MebibytesField(
        label=_("Largest image (MiB)"),
        initial=Project._meta.get_field("max_image_bytes").get_default(),
        min_value=1,
        max_value=100 * 1024,
        help_text=_("A larger one is removed, and the build fails."),
    )
    keep_bytes = MebibytesField(
        label=_("Size limit (MiB)"),
        required=False,
        min_value=1,
        max_value=2**31 - 1,
        help_text=_("Of each dataset; beyond it the oldest data is deleted."),
    )

    class Meta:
        model = Project
        fields = (
            "name",
            "slug",
            "description",
            "allowed_networks",
            "git_url",
            "git_username",
            "git_password",
            "default_branch",
            "tag_template",
            "webhook_secret",
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
            "keep_days",
            "keep_runs",
            "keep_bytes",
        )
        help_texts: ClassVar = {
            "webhook_secret": _(
                "Signs deliveries. Generated with the project; enter one only if a sender "
                "requires its own."
            )
        }

    def _get_validation_exclusions(self) -> set[str]:
        """Exclude secrets that were not entered: validation would encrypt stored secrets again."""
        excluded: set[str] = super()._get_validation_exclusions()  # type: ignore[misc]
        return excluded | {name for name in SECRETS if not self.cleaned_data.get(name)}

    def clean_webhook_secret(self) -> Any:
        """Validate the webhook secret, which must be strong."""
        secret = self.cleaned_data["webhook_secret"]
        if secret is not CLEAR:
            validate_webhook_secret(secret)
        return secret

    def clean_max_image_bytes(self) -> Any:
        """Keep the stored bytes if the value in MiB was not changed."""
        return self._unrounded("max_image_bytes")

    def clean_keep_bytes(self) -> Any:
        """Keep the stored bytes if the value in MiB was not changed."""
        return self._unrounded("keep_bytes")

    def _unrounded(self, name: str) -> Any:
        if name not in self.changed_data and self.instance.pk:
            return getattr(self.instance, name)
        return self.cleaned_data[name]
