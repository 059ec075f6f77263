"""Links between jobs, on the page of the job that follows."""

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
    """Refuses a circle, with the way round."""

    def clean(self) -> None:
        """Each link that is new or points elsewhere, under the lock that adding one takes."""
        super().clean()
        job = self.instance
        if job.pk is None or any(self.errors):
            # A new job has no followers yet, so nothing can lead back to it.
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
    """After which other jobs this one is run; only jobs that the person may edit are offered."""

    model = JobLink
    formset = LinkFormSet
    fk_name = "job"
    fields = ("after", "condition")
    tab = True
    verbose_name = _("job it follows")
    verbose_name_plural = _("runs after other jobs")

    def get_queryset(self, request: Any) -> Any:
        """With the names that are shown."""
        return super().get_queryset(request).select_related("after", "job")
