"""Create, change and delete channels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.utils.translation import gettext_lazy as _

from apps.access.models import User
from apps.access.services import record
from apps.alerts.engine.rules import Rule
from apps.alerts.errors import BadChannel, ChannelExists, ChannelInUse
from apps.alerts.models import Channel, Notice
from apps.alerts.queries.rules import active_rulebooks
from apps.alerts.services.channel_fields import read_fields
from apps.alerts.services.delivery import secrets_of
from apps.alerts.states import NoticeProblem, NoticeState
from yardkit.names import SLUG


@transaction.atomic
def create_channel(
    *,
    project_id: int | None,
    name: str,
    kind: str,
    typed: Mapping[str, Any],
    actor: User | None,
    language: str = "en",
    enabled: bool = True,
) -> Channel:
    """Create a channel of a project, or of the platform (None).

    ``typed`` holds settings and secrets by the names in ``channel_fields``. Raises ``BadChannel``
    and ``ChannelExists``.
    """
    if not SLUG.fullmatch(name):
        text = _("Use lower-case letters, digits, '-' and '_', starting with a letter.")
        raise BadChannel(fields={"name": [text]})
    plain, secrets = read_fields(kind, typed, stored={})
    if Channel.objects.filter(project=project_id, name=name).exists():
        raise ChannelExists(fields={"name": [ChannelExists.detail]})
    channel = Channel(
        project_id=project_id,
        name=name,
        kind=kind,
        enabled=enabled,
        language=language,
        settings=plain,
        secrets=_packed(secrets),
    )
    try:
        with transaction.atomic():
            channel.save(force_insert=True)
    except IntegrityError:
        raise ChannelExists(fields={"name": [ChannelExists.detail]}) from None
    record(
        actor=actor,
        action="alerts.add_channel",
        obj=channel,
        after={**_shown(channel), "given": sorted(secrets)},
    )
    return channel


@transaction.atomic
def change_channel(
    *,
    channel: Channel,
    typed: Mapping[str, Any] | None = None,
    actor: User | None,
    language: str | None = None,
    enabled: bool | None = None,
) -> Channel:
    """Change a channel; its name, kind and project are fixed. Raises ``BadChannel``.

    ``typed=None`` keeps settings and secrets; otherwise all settings and the named secrets are
    replaced.
    """
    row = Channel.objects.select_for_update().get(pk=channel.pk)
    before, had = _shown(row), secrets_of(row)
    secrets = had
    if typed is not None:
        row.settings, secrets = read_fields(row.kind, typed, stored=had)
        row.secrets = _packed(secrets)
    row.language = row.language if language is None else language
    row.enabled = row.enabled if enabled is None else enabled
    row.save()
    changed = sorted(name for name in {*had, *secrets} if had.get(name) != secrets.get(name))
    after = _shown(row)
    if before != after or changed:
        record(
            actor=actor,
            action="alerts.change_channel",
            obj=row,
            before=before,
            after={**after, "changed": changed},
        )
    return row


@transaction.atomic
def delete_channel(*, channel: Channel, actor: User | None) -> None:
    """Delete a channel and fail its waiting notifications. Raises ``ChannelInUse``."""
    rules = rules_using(channel)
    if rules:
        raise ChannelInUse(fields={"rules": [", ".join(rules)]})
    waiting = Notice.objects.filter(channel=channel, state=NoticeState.WAITING)
    waiting.update(state=NoticeState.FAILED, problem=NoticeProblem.NO_CHANNEL, next_try_at=None)
    record(actor=actor, action="alerts.delete_channel", obj=channel, before=_shown(channel))
    channel.delete()


def rules_using(channel: Channel) -> list[str]:
    """Return the rules that name this channel; for a platform channel, also those of projects."""
    rulebooks = active_rulebooks()
    searched = [rulebooks.of(channel.project_id)]
    if channel.project_id is None:
        searched += rulebooks.projects.values()
    rule_names: list[str] = []
    for book in searched:
        rule_names += [rule.name for rule in book.rules if channel.name in _named(rule)]
        if channel.name in book.tell:
            rule_names.append("defaults")
    return sorted(set(rule_names))


def _named(rule: Rule) -> list[str]:
    return [*rule.tell, *(name for step in rule.escalate for name in step.tell)]


def _packed(secrets: Mapping[str, str]) -> str:
    return json.dumps(dict(secrets), sort_keys=True) if secrets else ""


def _shown(channel: Channel) -> dict[str, Any]:
    """Return the audited fields; the audit trail masks values that look secret."""
    return {
        "kind": channel.kind,
        "enabled": channel.enabled,
        "language": channel.language,
        "settings": channel.settings,
    }
