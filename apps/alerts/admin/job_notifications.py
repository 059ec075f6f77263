"""Form handlers of the notifications on a job's page."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from apps.access.admin.base import person_of, projects_of
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.alerts.models import RunSubscription
from apps.alerts.queries.recipients import channels_of
from apps.alerts.services.subscriptions import notify_me, subscribe, unsubscribe
from apps.jobs.models import Job
from apps.projects.admin.project_choice import number_in

WHEN = {"failure": False, "end": True}


@require_POST
def notify_me_view(request: HttpRequest, pk: int) -> HttpResponse:
    """Subscribe the user to failures or to each end of a job's runs, or end that."""
    job, person = _job(request, pk, Role.VIEWER), person_of(request)
    when = request.POST.get("when", "")
    if person is None or (when and when not in WHEN):
        raise Http404
    try:
        address = request.POST.get("address", "").strip()
        notify_me(user=person, job=job, every_end=WHEN.get(when), address=address)
    except DomainError as error:
        messages.error(request, error.text)
    else:
        done = {
            "failure": _("You are notified at %(address)s when this job fails."),
            "end": _("You are notified at %(address)s of each end of a run."),
        }
        text = done.get(when, _("You are no longer notified of this job."))
        messages.success(request, text % {"address": person.email} if when else text)
    return _back(job.pk)


@require_POST
def subscribe_view(request: HttpRequest, pk: int) -> HttpResponse:
    """Subscribe a channel to a job."""
    job = _job(request, pk, Role.EDITOR)
    number = number_in(request.POST.get("channel", ""))
    channel = get_object_or_404(channels_of(job.project_id), pk=number)
    when = WHEN.get(request.POST.get("when", ""), False)
    subscribe(channel=channel, job=job, every_end=when, actor=person_of(request))
    messages.success(request, _("%(name)s is notified.") % {"name": channel.name})
    return _back(job.pk)


@require_POST
def unsubscribe_view(request: HttpRequest, pk: int) -> HttpResponse:
    """End a subscription, from the page of its job or of its channel."""
    rows = RunSubscription.objects.visible_to(request.user).select_related("channel__person")
    row = get_object_or_404(rows, pk=pk)
    if row.project_id not in projects_of(request, Role.EDITOR):
        raise PermissionDenied
    unsubscribe(subscription=row, actor=person_of(request))
    messages.success(request, _("The subscription has ended."))
    if row.job_id is not None:
        return _back(row.job_id)
    return HttpResponseRedirect(reverse("admin:alerts_channel_change", args=[row.channel_id]))


def _job(request: HttpRequest, pk: int, role: Role) -> Job:
    job: Any = Job.objects.visible_to(request.user).filter(pk=pk).first()
    if job is None:
        raise Http404
    if job.project_id not in projects_of(request, role):
        raise PermissionDenied
    found: Job = job
    return found


def _back(pk: int) -> HttpResponseRedirect:
    return HttpResponseRedirect(f"{reverse('dashboard:job-alerts', args=[pk])}#notifications")


_view = admin.site.admin_view
addresses = [
    path("jobs/<int:pk>/notify-me", _view(notify_me_view), name="notify-me"),
    path("jobs/<int:pk>/subscribe", _view(subscribe_view), name="subscribe"),
    path("subscriptions/<int:pk>/end", _view(unsubscribe_view), name="unsubscribe"),
]
