"""Items that are sent to the web process (seed S2.6): ``POST /task/``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from apps.routing.engine.inbounds.base import Finding, Parameter


class HttpInbound:
    """Says that a rule set takes items over HTTP, by which selector and converters.

    It is no ``base.Inbound``: nothing is polled. The web process hands each item over, and has
    stored it before it answers.
    """

    PARAMETERS: ClassVar[tuple[Parameter, ...]] = ()

    @classmethod
    def check(cls, init: Mapping[str, Any]) -> list[tuple[str, Finding]]:
        """Nothing can be wrong with no parameters."""
        return []
