"""Alert rules as a kind of configuration: YAML in and out, of projects and of the platform."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from apps.alerts.engine.checking import problems
from apps.alerts.queries.rules import KIND
from apps.configcenter.engine.plain import MAX_BYTES, Data
from apps.configcenter.services import Found, Kind, Problem, Unreadable
from yardkit.yaml_reading import Limits, YamlError, read_document, shown_path
from yardkit.yaml_writing import write_value

_LIMITS: Final = Limits(bytes=MAX_BYTES)


class AlertsKind(Kind):
    """What is watched, and who is told. No secret is in it: rules name channels."""

    name = KIND
    title = _("Alert rules")
    suffix: ClassVar[str] = "yaml"
    media_type: ClassVar[str] = "application/yaml"
    platform: ClassVar[bool] = True

    def check(self, data: Data) -> Iterable[Problem]:
        """Every problem, with its place, such as ``rules[3].when.above``."""
        return list(problems(data))

    def summary(self, data: Data) -> str:
        """How many rules."""
        count = len(data.get("rules") or [])
        return ngettext("%(count)d rule", "%(count)d rules", count) % {"count": count}

    def read(self, raw: bytes, name: str = "") -> Data:
        """YAML, and so JSON."""
        try:
            root = read_document(raw, _LIMITS).root
        except YamlError as error:
            where = shown_path(error.path)
            text = f"{where}: {error}" if where else str(error)
            place = f"{name}:{error.line}" if name else f"line {error.line}"
            raise Unreadable([Found(place, error.code, text)]) from None
        if root is None:
            return {}
        if not isinstance(root, dict):
            text = "alert rules are a mapping with rules, quiet_hours and defaults"
            raise Unreadable([Found(name, "not_a_mapping", text)])
        return root

    def write(self, data: Data) -> str:
        """YAML that ``read`` reads back."""
        return write_value(data)
