"""Inline of links to preceding jobs, on the page of the following job."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.forms import BaseInlineFormSet
from django.utils.translation import gettext_lazy as _

from apps.access.admin import ProjectScopedInline
from apps.jobs.errors import JobsError
from apps.jobs.models import Job, JobLink
from apps.jobs.services.links import hold_links, refuse_cycle


class LinkFormSet(BaseInlineFormSet):  # type: ignore[type-arg]
    """Form set that rejects cycles; the error shows the path of the cycle."""

    def clean(self) -> None:
        """Check new and changed links for cycles, under the lock for adding links."""
        super().clean()
        job = self.instance
        if job.pk is None or any(self.errors):
            # Nothing follows a new job yet, so no cycle is possible.
            return
        hold_links()
        for form in self.forms:
            after = form.cleaned_data.get("after")
            if isinstance(after, Job) and not form.cleaned_data.get("DELETE"):
                try:
                    refuse_cycle(job=job, after=after, actor=None)
                except JobsError as error:
                    raise ValidationError(error.text) from error


class JobLinkInline(ProjectScopedInline):
    """Inline of the jobs after which this job runs; offers only jobs that the user may edit."""

    model = JobLink
    formset = LinkFormSet
    fk_name = "job"
    fields = ("after", "condition")
    tab = True
    verbose_name = _("preceding job")
    verbose_name_plural = _("runs after other jobs")

    def get_queryset(self, request: Any) -> Any:
        """Join the tables whose names are shown."""
        return super().get_queryset(request).select_related("after", "job")
