"""Admin form of a job."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    INPUT_CLASSES,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from apps.jobs.admin import fields
from apps.jobs.admin.images import FrontierField, ImageField
from apps.jobs.admin.spiders import ArgumentsFormField, ArgumentsInput, spider_choices
from apps.jobs.errors import JobNameTaken, SecretsUnreadable
from apps.jobs.models import OPTIONS, Job
from apps.jobs.queries import SPIDER_FIELDS, image_description, spider_errors
from apps.projects.models import Image, Project
from apps.runtime.fields import CLEAR, SecretInput
from apps.seeds.models import Frontier
from yardkit.secretbox import SecretError

_TOGETHER = frozenset({"spider", "command", "image"})


def _area(rows: int) -> UnfoldAdminTextareaWidget:
    return UnfoldAdminTextareaWidget(attrs={"rows": rows, "spellcheck": "false"})


def _line() -> UnfoldAdminTextInputWidget:
    return UnfoldAdminTextInputWidget(attrs={"spellcheck": "false", "autocomplete": "off"})


class JobForm(forms.ModelForm):  # type: ignore[type-arg]
    """Form of a job with its cross-field checks."""

    # Projects whose images can be chosen; set by the admin.
    projects: ClassVar[Any] = Project.objects.none()

    image = ImageField(
        label=_("Image"),
        queryset=Image.objects.none(),
        required=False,
        empty_label=_("none: a local process"),
        help_text=_("Images of successful builds, newest first."),
    )
    frontier = FrontierField(
        label=_("URL queue"),
        queryset=Frontier.objects.none(),
        required=False,
        empty_label=_("none"),
        help_text=_("The runs add seeds to this URL queue and crawl them."),
    )
    command = fields.CommandFormField(
        label=_("Command"),
        required=False,
        strip=True,
        widget=_line(),
        help_text=_(
            "Program and arguments, quoted as for a shell, such as python crawl.py --depth 3. "
            "No shell runs it. Instead of a spider."
        ),
    )
    arguments = ArgumentsFormField(
        label=_("Arguments"),
        required=False,
        widget=ArgumentsInput(attrs={"rows": 5, "spellcheck": "false"}),
        help_text=_(
            'A JSON object the spider receives, such as {"start": "https://example.org/"}.'
        ),
    )
    time_zone = forms.CharField(
        label=_("Time zone"),
        max_length=50,
        initial=lambda: settings.TIME_ZONE,
        widget=fields.TimeZoneInput(),
        help_text=_("Time zone of the schedule, such as Asia/Shanghai."),
    )
    environment = fields.EnvironmentFormField(
        label=_("Environment"),
        required=False,
        widget=_area(5),
        help_text=_(
            "NAME=value, separated by line breaks or spaces; quote values with spaces. "
            "Or a JSON object. Visible to everyone who can see the job."
        ),
    )
    secrets = fields.SecretsFormField(
        label=_("Secret environment"),
        required=False,
        widget=fields.SecretsInput(attrs={"rows": 3}),
        help_text=_(
            "One NAME=value a line, with literal values, or a JSON object. Encrypted "
            "and never shown again; secrets that you do not name keep their values."
        ),
    )
    memory_limit_bytes = fields.MemoryField(
        label=_("Memory limit"),
        required=False,
        widget=_line(),
        help_text=_("MiB, or with a unit: 512, 2 GiB. Empty is the installation's default."),
    )
    host_labels = fields.EnvironmentFormField(
        label=_("Host labels"),
        required=False,
        widget=_area(2),
        help_text=_("name=value, one a line; the job runs only on hosts with all of these labels."),
    )
    retry_rules = fields.RetryRulesFormField(
        label=_("Retry rules"),
        required=False,
        widget=_area(4),
        help_text=_(
            "A JSON list; the first rule that matches how a run ended applies, such as "
            '[{"on": "lost", "retries": 1}, {"on": "failed", "codes": [137], '
            '"retries": 3, "delay_seconds": 60}].'
        ),
    )
    tags = fields.TagsFormField(
        label=_("Tags"),
        required=False,
        widget=_line(),
        help_text=_("Words to find and group jobs by, separated by spaces or commas."),
    )
    cut = fields.CutRulesFormField(
        label=_("Cut rules"),
        required=False,
        widget=_area(6),
        help_text=_(
            # The admin theme renders help texts as HTML.
            "A JSON list; each rule cuts a part out of the text on the agent, one after another, "
            'such as [{"start": "&lt;main", "end": "&lt;/main&gt;"}, {"pattern": "id=([0-9]+)"}]. '
            "Keys: start, end, pattern (RE2; its first group), start_offset, end_offset, trim."
        ),
    )
    cookies = fields.CookiesFormField(
        label=_("Cookies"),
        required=False,
        widget=SecretInput(attrs={"class": " ".join(INPUT_CLASSES)}),
        help_text=_('Initial cookies: "name=value; name=value" or a JSON object. Encrypted.'),
    )

    class Meta:
        model = Job
        fields: ClassVar = [
            "project",
            "name",
            "enabled",
            "tags",
            "notes",
            "image",
            "spider",
            "command",
            "arguments",
            "frontier",
            "cron",
            "time_zone",
            "overlap",
            "misfire",
            "environment",
            "secrets",
            "speed",
            "concurrency",
            *OPTIONS,
            "host_labels",
            "priority",
            "cpu_limit",
            "memory_limit_bytes",
            "max_run_seconds",
            "max_failed_percent",
            "max_exceptions",
            "min_items",
            "trial_required",
            "trial_lost_percent",
            "trial_changed_percent",
            "retry_rules",
        ]
        widgets: ClassVar = {"notes": UnfoldAdminTextareaWidget(attrs={"rows": 3})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Changes of secrets, for the service; None removes a secret.
        self.secret_changes: dict[str, str | None] = {}
        if "image" in self.fields:
            self._offer_images()
            self._offer_spiders()
        if "frontier" in self.fields:
            self._offer_frontiers()
        if "secrets" in self.fields:
            self.fields["secrets"].widget.names = self.instance.secret_names

    def _offer_images(self) -> None:
        rows = Image.objects.filter(project__in=self.projects, removed_at=None)
        if self.instance.pk is not None:
            # Images of the job's project, and its current image even if that was removed.
            mine = Q(project=self.instance.project_id, removed_at=None)
            rows = Image.objects.filter(mine | Q(pk=self.instance.image_id))
        if self.is_bound and self.instance.pk is not None:
            # This form can change the project, so images of other projects are valid too.
            rows = rows | Image.objects.filter(project__in=self.projects, removed_at=None)
        self.fields["image"].queryset = rows.select_related("project")  # type: ignore[attr-defined]

    def _offer_spiders(self) -> None:
        """List the spiders of the chosen image and draw the arguments of the chosen one."""
        described = image_description(self._chosen_image())
        if described is None:
            return
        name = str(self["spider"].value() or "")
        self.fields["spider"].widget = UnfoldAdminSelectWidget(
            choices=spider_choices(described, name)
        )
        self.fields["spider"].help_text = _("The spiders that the image describes.")
        spider = described.spider(name)
        if spider is not None:
            self.fields["arguments"].widget.arguments = spider["arguments"]

    def _chosen_image(self) -> Image | None:
        field: Any = self.fields["image"]
        try:
            chosen: Image | None = field.to_python(self["image"].value())
        except forms.ValidationError:
            return None
        return chosen

    def _offer_frontiers(self) -> None:
        rows = Frontier.objects.filter(project__in=self.projects)
        if self.instance.pk is not None and not self.is_bound:
            rows = Frontier.objects.filter(project=self.instance.project_id)
        elif self.instance.pk is not None:
            rows = rows | Frontier.objects.filter(project=self.instance.project_id)
        chosen = rows.select_related("project").order_by("project__name", "name")
        self.fields["frontier"].queryset = chosen  # type: ignore[attr-defined]  # a choice of rows

    def clean_secrets(self) -> Any:
        """Return all secrets as JSON text; "" keeps the stored secrets."""
        changes = self.cleaned_data["secrets"]
        if not changes:
            return ""
        try:
            left = fields.secrets_after(self.instance.secret_environment(), changes)
        except SecretError as error:
            raise forms.ValidationError(SecretsUnreadable.detail) from error
        self.secret_changes = changes
        return json.dumps(left) if left else CLEAR

    def clean_notes(self) -> str:
        """Convert line breaks to LF: browsers send CRLF."""
        notes: str = self.cleaned_data["notes"]
        return notes.replace("\r\n", "\n")

    def clean(self) -> dict[str, Any] | None:
        """Report a duplicate name, a missing spider and missing arguments at their fields."""
        cleaned = super().clean()
        project, name = self.cleaned_data.get("project"), self.cleaned_data.get("name")
        if project is not None and name:
            others = Job.objects.filter(project=project, name=name).exclude(pk=self.instance.pk)
            if others.exists():
                self.add_error("name", str(JobNameTaken.detail))
        if set(SPIDER_FIELDS) & set(self.changed_data):
            self._check_spider()
        return cleaned

    def _check_spider(self) -> None:
        given = self.cleaned_data
        errors = spider_errors(
            spider=given.get("spider", ""),
            image=given.get("image"),
            command=given.get("command") or [],
            arguments=given.get("arguments") or {},
        )
        for name, error in errors.items():
            # Arguments that cannot be read have an error already.
            if name not in self.errors:
                self.add_error(name, error)

    def _update_errors(self, errors: forms.ValidationError) -> None:
        # Drop cross-field errors of fields that have an error of their own.
        if _TOGETHER & set(self.errors) and hasattr(errors, "error_dict"):
            for name in _TOGETHER - set(self.errors):
                errors.error_dict.pop(name, None)
        super()._update_errors(errors)  # type: ignore[misc]
