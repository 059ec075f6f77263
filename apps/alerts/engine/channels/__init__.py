"""How each kind of channel wants to be called, and how it says that it has not listened.

``call_of(kind, ...)`` -> the request, ``judge(kind, ...)`` -> what the answer means. No network
here. Mail is no HTTP: see ``services.mail``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import ModuleType
from typing import Any, Final

from apps.alerts.engine.channels import dingtalk, feishu, sms, webhook, wecom
from apps.alerts.engine.channels.base import Answer, Call, Outcome, Verdict
from apps.alerts.engine.messages import Message

_KINDS: Final[Mapping[str, ModuleType]] = {
    "sms": sms,
    "webhook": webhook,
    "dingtalk": dingtalk,
    "wecom": wecom,
    "feishu": feishu,
}


def receivers_of(kind: str, settings: Mapping[str, Any]) -> list[str]:
    """Who is called one by one; a single "" where one call reaches everybody."""
    name = {"mail": "to", "sms": "numbers"}.get(kind)
    return list(settings.get(name, [])) if name else [""]


def call_of(
    kind: str,
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> Call:
    """The request that tells ``receiver``. Raises ``ValueError`` where the settings are no good."""
    made = _KINDS[kind].call_of(message, settings, secrets, receiver=receiver, now=now)
    assert isinstance(made, Call)  # noqa: S101 - for the type
    return made


def judge(kind: str, answer: Answer, settings: Mapping[str, Any]) -> Verdict:
    """What an answer means; robots refuse with HTTP 200."""
    found = _KINDS[kind].judge(answer, settings)
    assert isinstance(found, Verdict)  # noqa: S101 - for the type
    return found


__all__ = ["Answer", "Call", "Outcome", "Verdict", "call_of", "judge", "receivers_of"]
