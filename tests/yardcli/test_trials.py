"""Image trials on the command line."""

from __future__ import annotations

import pytest

from apps.projects.models import Project
from tests.datasets.factories import make_trial
from tests.yardcli.conftest import Crawlyard


@pytest.mark.slow("2 s")
@pytest.mark.covers("OB.6")
def test_trials_are_listed_shown_and_used(entered: Crawlyard, project: Project) -> None:
    trial = make_trial(project, reason="one of two")
    assert entered("trials", "start", trial.job.pk, "no/such:1").code == 4
    refused = entered("trials", "start", trial.job.pk, trial.image.reference)
    assert (refused.code, "has kept pages" in refused.err) == (6, True)
    assert "one of two" in entered("trials", "list", trial.job.pk).out
    assert "one of two" in entered("trials", "show", trial.pk).out
    without = entered("trials", "use", trial.pk)
    assert (without.code, "say why" in without.err) == (2, True)
    assert entered("trials", "use", trial.pk, "--note", "known").code == 0
    trial.job.refresh_from_db()
    assert trial.job.image == trial.image
