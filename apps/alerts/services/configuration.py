"""Configuration kind of alert rules: YAML of a project or of the platform."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from apps.alerts.engine.validation import problems
from apps.alerts.queries.rules import KIND
from apps.configcenter.engine.plain import Data
from apps.configcenter.services import Problem, YamlKind


class AlertsKind(YamlKind):
    """Alert rules with their quiet hours and recipients; contains no secrets, only channel
    names."""

    name = KIND
    title = _("Alert rules")
    shape: ClassVar[str] = "alert rules are a mapping with rules, quiet_hours and defaults"
    platform: ClassVar[bool] = True

    def check(self, data: Data) -> Iterable[Problem]:
        """Return every problem with its place, for example ``rules[3].when.above``."""
        return list(problems(data))

    def summary(self, data: Data) -> str:
        count = len(data.get("rules") or [])
        return ngettext("%(count)d rule", "%(count)d rules", count) % {"count": count}
