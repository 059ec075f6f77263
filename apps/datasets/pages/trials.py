"""Pages of a job's image trials: start one, look at its result, use the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from apps.access.errors import DomainError
from apps.access.models import User
from apps.access.services import has_role
from apps.access.states import Role
from apps.datasets.engine.trials import TrialExcess, TrialLimit, TrialResult
from apps.datasets.services.trials import activate_trial, recorded_run, start_trial
from apps.jobs.models import ImageTrial, Job
from apps.jobs.states import TrialState
from apps.projects.models import Image

_SHOWN: Final = 50
_IMAGES: Final = 100


@dataclass(frozen=True, slots=True)
class _Measure:
    """A line of the comparison of both runs."""

    name: str
    recorded: float
    trial: float
    is_time: bool = False


def trials_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the trials of a job, and start one; that needs the role operator."""
    job = get_object_or_404(
        Job.objects.visible_to(request.user).select_related("project", "image"), pk=pk
    )
    if request.method == "POST":
        return _start(request, job)
    recorded = recorded_run(job)
    images = Image.objects.available().filter(project=job.project_id)
    context = admin.site.each_context(request) | {
        "title": _("Image trials of %(job)s") % {"job": job.name},
        "job": job,
        "trials": job.trials.select_related("image", "run")[:_SHOWN],
        "recorded": recorded,
        "images": images.exclude(pk=job.image_id).order_by("-created_at", "-id")[:_IMAGES],
        "may_start": has_role(request.user, job.project_id, Role.OPERATOR),
    }
    return TemplateResponse(request, "datasets/trials.html", context)


def trial_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a trial: numbers of both runs, differences of their items, exceeded limits."""
    trial = _visible(request, pk)
    result = msgspec.convert(trial.result, TrialResult) if trial.result else None
    context = admin.site.each_context(request) | {
        "title": _("Trial of %(image)s") % {"image": trial.image},
        "job": trial.job,
        "trial": trial,
        "result": result,
        "measures": _measures(result) if result else [],
        "excesses": [_text(excess) for excess in result.excesses] if result else [],
        "is_current": trial.job.image_id == trial.image_id,
        "may_use": trial.state != TrialState.RUNNING
        and has_role(request.user, trial.job.project_id, Role.EDITOR),
    }
    return TemplateResponse(request, "datasets/trial.html", context)


@require_POST
def use_image(request: HttpRequest, pk: int) -> HttpResponse:
    """Make the image of a trial the image of its job."""
    trial = _visible(request, pk)
    person = request.user
    if not isinstance(person, User) or not has_role(person, trial.job.project_id, Role.EDITOR):
        raise PermissionDenied
    try:
        activate_trial(
            trial=trial, actor=person, note=request.POST.get("note", ""), now=timezone.now()
        )
    except DomainError as error:
        messages.error(request, str(error))
    else:
        words = {"image": trial.image, "job": trial.job.name}
        messages.success(request, _("%(job)s uses %(image)s from its next run on.") % words)
    return HttpResponseRedirect(reverse("datasets:trial", args=[trial.pk]))


def _start(request: HttpRequest, job: Job) -> HttpResponse:
    person = request.user
    if not isinstance(person, User) or not has_role(person, job.project_id, Role.OPERATOR):
        raise PermissionDenied
    asked = request.POST.get("image", "")
    if not (asked.isascii() and asked.isdigit() and len(asked) < 19):
        raise Http404
    image = get_object_or_404(Image.objects.available(), pk=int(asked), project=job.project_id)
    try:
        trial = start_trial(job=job, image=image, actor=person, now=timezone.now())
    except DomainError as error:
        messages.error(request, str(error))
        return HttpResponseRedirect(request.path)
    return HttpResponseRedirect(reverse("datasets:trial", args=[trial.pk]))


def _visible(request: HttpRequest, pk: int) -> ImageTrial:
    rows = ImageTrial.objects.visible_to(request.user)
    return get_object_or_404(
        rows.select_related("job__project", "image", "run", "recorded_run"), pk=pk
    )


def _measures(result: TrialResult) -> list[_Measure]:
    return [
        _Measure(_("Items"), *result.items),
        _Measure(_("Requests"), *result.requests),
        _Measure(_("Failed requests"), *result.failed),
        _Measure(_("Duration"), *result.seconds, is_time=True),
    ]


def _text(excess: TrialExcess) -> str:
    texts = {
        TrialLimit.ENDED: _("The run did not end with success."),
        TrialLimit.LOST: _("%(found)s %% of the items are missing; %(allowed)s %% may be."),
        TrialLimit.CHANGED: _("%(found)s %% of the items differ; %(allowed)s %% may."),
        TrialLimit.FAILED: _("%(found)s %% of the requests failed; %(allowed)s %% may."),
    }
    words = {"found": f"{excess.found:g}", "allowed": f"{excess.allowed:g}"}
    return str(texts[excess.limit]) % words
