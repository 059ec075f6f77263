"""Page that previews how a tag is parsed and lists the tags of the git server."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminTextInputWidget

from apps.access.errors import DomainError
from apps.projects.models import Project
from apps.projects.services import check_connection, preview_tag

MAX_INPUT = 1000


class TagForm(forms.Form):
    """Form with a tag to preview."""

    tag = forms.CharField(
        label=_("Tag"),
        max_length=MAX_INPUT,
        required=False,
        strip=False,
        widget=UnfoldAdminTextInputWidget(attrs={"spellcheck": "false", "autocomplete": "off"}),
    )
    template = forms.CharField(
        label=_("Template"),
        max_length=MAX_INPUT,
        required=False,
        widget=UnfoldAdminTextInputWidget(attrs={"spellcheck": "false", "autocomplete": "off"}),
        help_text=_("Preview another template; it is not saved."),
    )


def tags_page(
    request: HttpRequest, project: Project, context: dict[str, Any], *, may_test: bool
) -> HttpResponse:
    """Preview a tag for ``?tag=&template=``, or list the tags of the git server (POST)."""
    form = TagForm(
        {
            "tag": request.GET.get("tag", ""),
            "template": request.GET.get("template") or project.tag_template,
        }
    )
    preview = None
    if request.GET.get("tag") and form.is_valid():
        preview = preview_tag(project=project, **form.cleaned_data)
    connection, refusal = None, ""
    if request.method == "POST":
        try:
            connection = check_connection(project=project)
        except DomainError as error:
            refusal = error.text
    context |= {
        "title": gettext("Tags of %(project)s") % {"project": project},
        "project": project,
        "form": form,
        "preview": preview,
        "may_test": may_test,
        "found": connection,
        "refusal": refusal,
    }
    return TemplateResponse(request, "admin/projects/project/tags.html", context)
