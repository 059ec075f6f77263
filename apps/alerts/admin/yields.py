"""Form handlers of the yield section on a job's page."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.views.decorators.http import require_POST

from apps.access.admin.base import person_of, projects_of
from apps.access.states import Role
from apps.alerts.models import YieldPolicy
from apps.alerts.models.yields import LIMITS
from apps.alerts.services.yields import reset_baseline, set_policy
from apps.jobs.models import Job


class YieldPolicyForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic when it runs
    """Anomaly limits of a job; an empty limit is disabled."""

    class Meta:
        model = YieldPolicy
        fields = ("enabled", *LIMITS)


@require_POST
def save_policy(request: HttpRequest, pk: int) -> HttpResponse:
    """Save the anomaly limits and return to the job's page."""
    job = _edited(request, pk)
    form = YieldPolicyForm(request.POST, instance=YieldPolicy(job=job))
    if form.is_valid():
        set_policy(job=job, values=form.cleaned_data, actor=person_of(request))
        messages.success(request, gettext("Yield monitoring settings saved."))
    else:
        for name, errors in form.errors.items():
            label = form.fields[name].label if name in form.fields else name
            text = gettext("%(field)s: %(problem)s")
            messages.error(request, text % {"field": label, "problem": errors[0]})
    return _back(pk)


@require_POST
def learn(request: HttpRequest, pk: int) -> HttpResponse:
    """Reset the baseline and return to the job's page."""
    job = _edited(request, pk)
    reset_baseline(job=job, now=timezone.now(), actor=person_of(request))
    text = gettext("Baseline reset. Earlier runs are no longer compared.")
    messages.success(request, text)
    return _back(pk)


def _edited(request: HttpRequest, pk: int) -> Job:
    job: Any = Job.objects.visible_to(request.user).filter(pk=pk).first()
    if job is None:
        raise Http404
    if job.project_id not in projects_of(request, Role.EDITOR):
        raise PermissionDenied
    edited: Job = job
    return edited


def _back(pk: int) -> HttpResponseRedirect:
    return HttpResponseRedirect(f"{reverse('dashboard:job-alerts', args=[pk])}#yields")


addresses = [
    path("jobs/<int:pk>/yields", admin.site.admin_view(save_policy), name="yield-policy"),
    path("jobs/<int:pk>/yields/learn", admin.site.admin_view(learn), name="yield-learn"),
]
