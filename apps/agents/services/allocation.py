"""Allocations: chosen by the center and recorded."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import datetime

import msgspec
from django.conf import settings as django_settings
from django.db import transaction

from apps.agents.engine.owners import OwnerFacts, look_up, number_of, owner_of
from apps.agents.errors import AllocationRefused, NoAgentFree
from apps.agents.models import Agent, Allocation
from apps.agents.queries import consider
from apps.agents.states import given_number, none_text, shortfall_text, wanted_number
from apps.jobs.queries import run_cookies
from yardkit.protocol import (
    Allocate,
    DownloaderSettings,
    DownloaderType,
    KeepPages,
    PagePolicy,
    ReplaySource,
)
from yardkit.secretbox import SecretError
from yardkit.tokens import sign_pages_token


def join_run(*, allocation: Allocation, agent: Agent) -> None:
    """Add ``agent`` to an allocation; it has its downloader already."""
    allocation.agents.add(agent)


@transaction.atomic
def allocate(*, message: Allocate, alive: Sequence[str], now: datetime) -> Allocation:
    """Choose agents for a run among those ``alive`` and record them.

    Also for other owners (``engine.owners``). The networks its agents may reach come from the
    project, never from the run; the pages they keep from the job; the cookies, too, so that
    messages of runs need not contain them (those of an older version do).

    Raises:
        AllocationRefused: no such active run, or its cookies cannot be decrypted.
        NoAgentFree: no agent at the moment; the text counts the reasons.
    """
    owner = owner_of(message.run)
    name = f"run {message.run}" if message.run >= 0 else owner
    facts = look_up([message.run]).get(message.run)
    if facts is None:
        raise AllocationRefused(f"{name} does not exist")
    if not facts.active:
        raise AllocationRefused(f"{name} has already ended")
    if message.agents < 0:
        raise AllocationRefused(f"{message.agents} agents cannot be allocated")
    before = Allocation.objects.open().filter(owner=owner).first()
    if before is not None and before.reply_to == message.reply_to:
        return before
    cookies = message.settings.cookies or _cookies(message.run)
    replay = _replay(facts)
    by_type = message.settings.type
    if replay.run and not replay.fetch_missing:
        by_type = DownloaderType.REPLAY
    kind = by_type.value
    considered = consider(Agent.objects.all(), alive=set(alive), wanted=kind)
    eligible = [each.agent for each in considered if each.refusal is None]
    refusals = [each.refusal for each in considered if each.refusal is not None]
    if not eligible:
        raise NoAgentFree(none_text(refusals, kind))
    asked = wanted_number(message.policy, message.agents)
    number = given_number(message.policy, message.agents, len(eligible))
    chosen = random.sample(eligible, number)
    settings = msgspec.structs.replace(
        message.settings,
        type=by_type,
        replay=replay,
        # Nobody is asked about pages that are here.
        obey_robots=message.settings.obey_robots and by_type is not DownloaderType.REPLAY,
        allowed_networks=list(facts.allowed_networks),
        cookies={},
        pages=_pages(message.run, facts),
    )
    if before is not None:
        # The run was restarted; its earlier execution receives nothing any more.
        Allocation.objects.filter(pk=before.pk).update(released_at=now)
    allocation = Allocation.objects.create(
        project_id=facts.project,
        owner=owner,
        reply_to=message.reply_to,
        policy=message.policy.value,
        asked=asked,
        settings=msgspec.to_builtins(settings),
        cookies=json.dumps(cookies) if cookies else "",
        warning=shortfall_text(asked, number, refusals, kind),
        created_at=now,
    )
    allocation.agents.set(chosen)
    return allocation


def _pages(run: int, facts: OwnerFacts) -> PagePolicy:
    """Return which pages the agents keep, with the token by which they store them."""
    if facts.pages.keep is KeepPages.NONE:
        return facts.pages
    token = sign_pages_token(django_settings.SECRET_KEY, facts.project, run)
    return msgspec.structs.replace(facts.pages, token=token)


def _replay(facts: OwnerFacts) -> ReplaySource:
    """Return the run that is replayed, with the token by which the agents read its pages."""
    if not facts.replay.run:
        return facts.replay
    token = sign_pages_token(django_settings.SECRET_KEY, facts.project, facts.replay.run)
    return msgspec.structs.replace(facts.replay, token=token)


def _cookies(run: int) -> dict[str, str]:
    try:
        return run_cookies(run) if run > 0 else {}
    except SecretError as error:
        raise AllocationRefused(f"the cookies of the job cannot be opened: {error}") from error


@transaction.atomic
def release(*, owner: str, now: datetime) -> list[Allocation]:
    """Release the agents of ``owner``; return the allocations that were open."""
    open_ones = list(Allocation.objects.open().filter(owner=owner).prefetch_related("agents"))
    Allocation.objects.filter(pk__in=[a.pk for a in open_ones]).update(released_at=now)
    return open_ones


def release_ended(*, now: datetime) -> list[Allocation]:
    """Release allocations of owners that ended without doing so."""
    open_owners = Allocation.objects.open().values_list("owner", flat=True)
    owners = {run: owner for owner in open_owners if (run := number_of(owner)) is not None}
    facts = look_up(owners)
    released = []
    for run, owner in owners.items():
        if run not in facts or not facts[run].active:
            released += release(owner=owner, now=now)
    return released


def downloader_settings(allocation: Allocation) -> DownloaderSettings:
    """Return the settings of an allocation, with its cookies decrypted."""
    cookies = json.loads(allocation.cookies) if allocation.cookies else {}
    return msgspec.convert({**allocation.settings, "cookies": cookies}, DownloaderSettings)
