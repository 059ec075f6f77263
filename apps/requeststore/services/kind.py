"""Configuration kind ``biz``: the settings of bizzes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from apps.configcenter.engine.plain import MAX_BYTES, MAX_DEPTH, MAX_VALUES, Data, check_plain
from apps.configcenter.services import DataProblem, Problem, Unreadable, YamlKind
from apps.requeststore.engine.biz import BizSettings
from apps.requeststore.engine.validation import SettingsProblem, changed_epochs, read_settings
from apps.requeststore.extraction import check_rules
from apps.requeststore.texts import told
from yardkit.yaml_reader import YamlError, YamlLimits, read_document, shown_path

KIND: Final = "biz"
_LIMITS: Final = YamlLimits(bytes=MAX_BYTES, depth=MAX_DEPTH, values=MAX_VALUES)


class BizKind(YamlKind):
    """All bizzes of a project."""

    name = KIND
    title = _("Request groups")

    def check(self, data: Data) -> Iterable[Problem]:
        """Validate fields, their combinations, and extraction rules."""
        return [*(told(flaw) for flaw in read_settings(data)[1]), *_rule_problems(data)]

    def check_change(self, old: Data, new: Data, now: datetime) -> Iterable[Problem]:
        """Warn about changed epochs that hold requests: see ``Epoch``."""
        before, after = read_settings(old)[0], read_settings(new)[0]
        if before is None or after is None:
            return []
        return list(_changed_epochs(before, after, int(now.timestamp() * 1000)))

    def summary(self, data: Data) -> str:
        """Return the number of bizzes and the first names."""
        names = list(data.get("bizzes") or {})
        count = ngettext("%(count)d request group", "%(count)d request groups", len(names)) % {
            "count": len(names)
        }
        shown = ", ".join(names[:6]) + (" …" if len(names) > 6 else "")
        return f"{count}: {shown}" if names else count

    def read(self, raw: bytes, name: str = "") -> Data:
        """Parse YAML or JSON. Raises ``Unreadable``."""
        try:
            root = read_document(raw, _LIMITS, refuse_merge_keys=True).root
            return check_plain({} if root is None else root)
        except YamlError as error:
            place = ":".join(filter(None, (name, str(error.line))))
            where = f" ({shown_path(error.path)})" if error.path else ""
            raise Unreadable([DataProblem(place, error.code, f"{error}{where}")]) from None
        except ValueError as error:
            raise Unreadable([DataProblem(name, "unreadable", str(error))]) from None


def _rule_problems(data: Data) -> Iterator[Problem]:
    bizzes = data.get("bizzes")
    for name, biz in bizzes.items() if isinstance(bizzes, dict) else ():
        rules = biz.get("rules") if isinstance(biz, dict) else None
        # Values that are no objects were reported by ``read_settings``.
        if isinstance(rules, dict):
            yield from check_rules(rules, f"bizzes.{name}.rules")


def _changed_epochs(before: BizSettings, after: BizSettings, now: int) -> Iterator[DataProblem]:
    for name, old in before.bizzes.items():
        new = after.bizzes.get(name)
        for index in changed_epochs(old, new, now) if new is not None else ():
            place = f"bizzes.{name}.epochs[{index}]"
            yield told(SettingsProblem(place, "epoch_changed", {"now": now}, warning=True))
