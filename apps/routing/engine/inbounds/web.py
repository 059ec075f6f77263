"""Inbound for items that clients send to the web process by ``POST /task/``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from apps.routing.engine.inbounds.base import Finding, Parameter


class HttpInbound:
    """Declaration that a rule set accepts items over HTTP, with its selectors and converters.

    It does not implement ``base.Inbound``, because it is not polled. The web process stores each
    item before it sends the response.
    """

    PARAMETERS: ClassVar[tuple[Parameter, ...]] = ()

    @classmethod
    def check(cls, init: Mapping[str, Any]) -> list[tuple[str, Finding]]:
        """Return no errors, because the class has no parameters."""
        return []
