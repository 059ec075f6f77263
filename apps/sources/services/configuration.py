"""Settings of sources as a kind of configuration; also reads the file of the program it
replaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from apps.configcenter.engine.plain import Data
from apps.configcenter.services import Problem, Unreadable, YamlKind
from apps.jobs.engine.cron import validate_cron
from apps.sources.engine import seed_config
from apps.sources.engine.validation import check
from apps.sources.queries import KIND


class SourcesKind(YamlKind):
    """Record APIs of a project. Entries refer to credentials; they contain no secrets."""

    name = KIND
    title = _("Sources")
    shape: ClassVar[str] = "sources are a mapping with defaults and sources"

    def check(self, data: Data) -> Iterable[Problem]:
        """Return all problems, with places; a broker other than BROKER_URL is a warning."""
        return list(check(data, cron=_check_cron, broker_url=settings.BROKER_URL))

    def summary(self, data: Data) -> str:
        """Number of sources, as text."""
        count = len(data.get("sources") or {})
        return ngettext("%(count)d source", "%(count)d sources", count) % {"count": count}

    def read(self, raw: bytes, name: str = "") -> Data:
        """Parse YAML; the seed's own config.yml becomes defaults."""
        root = super().read(raw, name)
        if not seed_config.is_seed_config(root):
            return root
        data, problems = seed_config.translated(root)
        if problems:
            raise Unreadable(problems)
        return data


def _check_cron(text: str) -> None:
    try:
        validate_cron(text)
    except ValidationError as error:
        raise ValueError(" ".join(error.messages)) from None
