"""Import of jobs from a file: preview, then the import itself."""

from __future__ import annotations

import base64
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
)

from apps.access.admin.base import person_of, projects_of
from apps.access.errors import DomainError
from apps.access.models import User
from apps.access.states import Role
from apps.jobs.engine.portable import MAX_BYTES, JobFileFormat, format_of
from apps.jobs.services import portable
from apps.jobs.services.portable import ImportMode, ImportPlan
from apps.projects.models import Project


class JobImportForm(forms.Form):
    """Form with a job file, uploaded or pasted, and the target project."""

    file = forms.FileField(
        label=_("File"),
        required=False,
        widget=UnfoldAdminFileFieldWidget,
        help_text=_("An exported YAML or CSV file, at most 1 MiB and 1,000 jobs."),
    )
    text = forms.CharField(
        label=_("Or its text"),
        required=False,
        strip=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 8, "spellcheck": "false"}),
    )
    kind = forms.ChoiceField(
        label=_("Format"),
        required=False,
        choices=[
            ("", _("by file name")),
            *((format_.value, format_.name) for format_ in JobFileFormat),
        ],
        widget=UnfoldAdminSelectWidget,
    )
    project = forms.ModelChoiceField(
        label=_("Project"),
        queryset=Project.objects.none(),
        required=False,
        empty_label=_("as named in the file"),
        widget=UnfoldAdminSelectWidget,
        help_text=_("Target project of all jobs in the file."),
    )
    mode = forms.ChoiceField(
        label=_("Mode"),
        choices=ImportMode.choices,
        initial=ImportMode.UPSERT,
        widget=UnfoldAdminSelectWidget,
    )
    # State of the preview: the packed file, its name, and the digest of the plan.
    packed = forms.CharField(required=False, widget=forms.HiddenInput)
    name = forms.CharField(required=False, max_length=200, widget=forms.HiddenInput)
    digest = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        projects = Project.objects.visible_to(user, Role.EDITOR)
        cast("Any", self.fields["project"]).queryset = projects

    def clean(self) -> dict[str, Any]:
        """Add ``raw``, the content as bytes or text."""
        values = super().clean() or self.cleaned_data
        file, text = values.get("file"), values.get("text")
        if file is not None and file.size > MAX_BYTES:
            size = {"limit": MAX_BYTES // 1024}
            self.add_error("file", gettext("The file is larger than %(limit)d KiB.") % size)
        elif file is not None:
            values["raw"], values["name"] = file.read(), file.name
        elif values.get("packed"):
            values["raw"] = _unpacked(values["packed"])
        elif text:
            # Browsers send CRLF line breaks.
            values["raw"] = text.replace("\r\n", "\n")
        elif "file" not in self.errors:
            self.add_error("file", gettext("Choose a file, or paste its text below."))
        values["format"] = JobFileFormat(values.get("kind") or format_of(values.get("name") or ""))
        return values


def _unpacked(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise forms.ValidationError(_("Choose a file, or paste its text below.")) from error


def import_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    """Show the form (GET), the preview (POST), or import the jobs (POST with ``apply``)."""
    person = person_of(request)
    if person is None or not projects_of(request, Role.EDITOR):
        raise PermissionDenied
    form = JobImportForm(request.POST or None, request.FILES or None, user=person)
    context |= {"title": _("Import jobs"), "form": form}
    if request.method == "POST" and form.is_valid():
        wanted = _wanted(form, person)
        if "apply" in request.POST:
            done = _apply(request, wanted, form.cleaned_data["digest"])
            if done is not None:
                return done
        plan = portable.plan_import(**wanted)
        context |= {"plan": plan, "counts": _counts(plan), "again": _again(form, wanted, plan)}
    return TemplateResponse(request, "admin/jobs/job/import.html", context)


def _wanted(form: JobImportForm, person: User) -> dict[str, Any]:
    values = form.cleaned_data
    return {
        "raw": values["raw"],
        "kind": values["format"],
        "actor": person,
        "project": values["project"],
        "mode": ImportMode(values["mode"]),
        "file": values["name"],
    }


def _apply(request: HttpRequest, wanted: dict[str, Any], digest: str) -> HttpResponse | None:
    try:
        plan = portable.import_jobs(**wanted, now=timezone.now(), digest=digest)
    except DomainError as error:
        messages.error(request, str(error))
        return None
    text = gettext("Imported: %(added)d added, %(changed)d changed, %(unchanged)d unchanged.")
    messages.success(request, text % _counts(plan))
    return HttpResponseRedirect(reverse("admin:jobs_job_changelist"))


def _counts(plan: ImportPlan) -> dict[str, int]:
    return {change: plan.count(change) for change in ("added", "changed", "unchanged")}


def _again(form: JobImportForm, wanted: dict[str, Any], plan: ImportPlan) -> dict[str, str]:
    """Return the hidden fields of the button "Import"; empty if the plan cannot be applied."""
    if plan.problems:
        return {}
    raw = wanted["raw"]
    project = wanted["project"]
    return {
        # Encoded as base64: a text area would change its line breaks.
        "packed": base64.b64encode(raw if isinstance(raw, bytes) else raw.encode()).decode(),
        "kind": wanted["kind"].value,
        "project": str(project.pk) if project else "",
        "mode": wanted["mode"].value,
        "name": plan.file,
        "digest": plan.digest,
    }
