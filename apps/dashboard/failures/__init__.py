"""System health: state of each server and process, affected work, and how to repair it."""

from apps.dashboard.failures.part import PartState, SystemPart
from apps.dashboard.failures.runbook import runbook_section
from apps.dashboard.failures.view import FailureView, failure_view

__all__ = ["FailureView", "PartState", "SystemPart", "failure_view", "runbook_section"]
