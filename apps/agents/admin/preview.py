"""Preview page: which agents a job would get now, and why not the others."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget

from apps.agents.queries import PolicyPreview, preview_allocation
from apps.agents.states import UnavailableReason, refusal_text
from apps.jobs.models import DownloaderKind, DownloadPolicy, Job

MOST_AGENTS = 10_000


class PreviewForm(forms.Form):
    """Parameters of a run that affect its agents."""

    policy = forms.ChoiceField(
        label=_("Policy"), choices=DownloadPolicy.choices, widget=UnfoldAdminSelectWidget
    )
    agents = forms.IntegerField(
        label=_("Agents"),
        min_value=0,
        max_value=MOST_AGENTS,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text=_("Number of agents; 0 means all with random, one with fixed and chained."),
    )
    type = forms.ChoiceField(
        label=_("Downloader"), choices=DownloaderKind.choices, widget=UnfoldAdminSelectWidget
    )


def preview_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    """Show ``?job=7`` or ``?policy=&agents=&type=``; by default all agents, type http."""
    job = _job(request)
    initial: dict[str, Any] = {
        "policy": DownloadPolicy.RANDOM,
        "agents": 0,
        "type": DownloaderKind.HTTP,
    }
    if job is not None:
        initial = {"policy": job.policy, "agents": job.agents, "type": job.downloader}
    typed = {name: request.GET[name] for name in initial if name in request.GET}
    form = PreviewForm(initial | typed)
    preview = None
    if form.is_valid():
        preview = preview_allocation(
            policy=form.cleaned_data["policy"],
            agents=form.cleaned_data["agents"],
            wanted_type=form.cleaned_data["type"],
            now=timezone.now(),
        )
    context |= {
        "title": _("Agent preview"),
        "job": job,
        "form": form,
        "preview": preview,
        "refused": _reasons(preview) if preview else [],
    }
    return TemplateResponse(request, "admin/agents/agent/preview.html", context)


def _job(request: HttpRequest) -> Job | None:
    asked = request.GET.get("job", "")
    if not asked:
        return None
    if not (asked.isascii() and asked.isdigit() and len(asked) < 19):
        raise Http404
    job: Job | None = Job.objects.visible_to(request.user).filter(pk=int(asked)).first()
    if job is None:
        raise Http404
    return job


def _reasons(preview: PolicyPreview) -> list[dict[str, Any]]:
    return [
        {
            "agent": each.agent,
            "reason": refusal_text(each.refusal, preview.wanted_type),
            "since": each.agent.heartbeat_at if each.refusal == UnavailableReason.SILENT else None,
            "silent": each.refusal == UnavailableReason.SILENT,
        }
        for each in preview.refused
        if each.refusal is not None
    ]
