"""Tab "Schedule" of a job: cron expression with presets, words and a preview."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from apps.access.admin.base import person_of
from apps.access.errors import DomainError
from apps.jobs.admin.forms import JobForm
from apps.jobs.engine.cron_words import PRESETS, cron_words
from apps.jobs.models import Job
from apps.jobs.queries import schedule_facts
from apps.jobs.services import update_job

FIELDS = ("cron", "time_zone", "overlap", "misfire")


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic when it runs
    """The fields of a job's form that make its schedule."""

    time_zone = JobForm.declared_fields["time_zone"]

    class Meta:
        model = Job
        fields: ClassVar = FIELDS
        widgets: ClassVar = {
            "cron": UnfoldAdminTextInputWidget(
                attrs={"autocomplete": "off", "spellcheck": "false", "placeholder": "0 6 * * *"}
            ),
            "overlap": UnfoldAdminSelectWidget,
            "misfire": UnfoldAdminSelectWidget,
        }


def schedule_page(request: HttpRequest, job: Job, context: dict[str, Any]) -> HttpResponse:
    """Show the schedule of a job; editors change it."""
    may_edit = context["may_edit"]
    form = ScheduleForm(request.POST if request.method == "POST" else None, instance=job)
    if request.method == "POST" and form.is_valid():
        values = {name: form.cleaned_data[name] for name in form.changed_data}
        stored = Job.objects.get(pk=job.pk)
        try:
            if values:
                update_job(job=stored, values=values, actor=person_of(request), now=timezone.now())
        except DomainError as error:
            form.add_error(None, error.text)
        else:
            messages.success(request, gettext("Schedule saved."))
            return HttpResponseRedirect(request.path)
    job.refresh_from_db()
    context |= {
        "title": gettext("Schedule of %(job)s") % {"job": job.name},
        "form": form,
        "may_edit": may_edit,
        "presets": PRESETS,
        "schedule": schedule_facts(job, now=timezone.now()),
        "words": cron_words(job.cron),
    }
    return TemplateResponse(request, "admin/jobs/job/schedule_page.html", context)
