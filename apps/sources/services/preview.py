"""Dry run: asks the API for its number of records and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from apps.projects.models import Project
from apps.sources.engine.clients.api_caller import Account, RetryBackoff
from apps.sources.engine.clients.base import Secrets
from apps.sources.engine.errors import ApiFailed
from apps.sources.engine.progress import Checkpoint, Marker, measure, plan
from apps.sources.engine.settings import Mode, ShrinkPolicy, Source
from apps.sources.errors import SourceBusy, SourceUnreachable
from apps.sources.models import Credential, SourceState
from apps.sources.queries import settings_of
from apps.sources.services.clients import client_of, secrets_of
from apps.sources.states import BUSY

# Short timeout: a user waits for the result.
_TIMEOUT_SECONDS: Final = 10.0
_PATIENCE: Final = RetryBackoff(first=0.2, longest=1.0)


@dataclass(frozen=True, slots=True)
class HarvestPreview:
    """``records`` in ``batches``, of which ``re_read`` were read before and will be dropped.

    ``resumed``: it continues an earlier import. ``shrunk``: the source has fewer records than
    before. ``counted`` is False if the API does not state the number of new records.
    """

    total: int
    batches: int = 0
    records: int = 0
    re_read: int = 0
    start_offset: int | None = None
    end_offset: int | None = None
    first: bool = False
    resumed: bool = False
    shrunk: bool = False
    counted: bool = True

    @property
    def new(self) -> int:
        """Number of records never read before."""
        return self.records - self.re_read


def preview(*, project_id: int, name: str, networks: Sequence[str] = ()) -> HarvestPreview:
    """Compute what a start would read. Changes nothing.

    Raises NoSuchSource; SourceBusy during an import; SourceUnreachable with the reason if the API
    returned no usable response.
    """
    source = settings_of(project_id, name)
    state = SourceState.objects.filter(project_id=project_id, name=name).first()
    if state is not None and state.activity in BUSY:
        raise SourceBusy
    try:
        total = _total(project_id, source, networks)
    except ApiFailed as error:
        raise SourceUnreachable(fields={"source": [str(error)]}) from error
    if source.mode is Mode.NOT_EXPORTED:
        return HarvestPreview(total, counted=False)
    if state is not None and state.content and state.content != source.content:
        # The marker refers to other records.
        state = None
    if state is not None and state.checkpoint is not None:
        at = msgspec.convert(state.checkpoint, Checkpoint)
        return _measured(total, at, resumed=True)
    marker = Marker()
    if state is not None:
        marker = Marker(start=state.marker, total=state.last_total, overlap=state.overlap)
    reset = source.shrunk is ShrinkPolicy.RESET
    harvest_plan = plan(marker, total, source.batch_size, reset_when_shrunk=reset)
    if harvest_plan.checkpoint is None:
        return HarvestPreview(total, shrunk=harvest_plan.shrunk)
    return _measured(total, harvest_plan.checkpoint, shrunk=harvest_plan.shrunk)


def _measured(
    total: int, at: Checkpoint, *, resumed: bool = False, shrunk: bool = False
) -> HarvestPreview:
    batches, records = measure(at)
    lowest = at.until - records
    return HarvestPreview(
        total,
        batches=batches,
        records=records,
        re_read=max(0, min(at.covered, at.until) - lowest) if batches else 0,
        start_offset=at.next if resumed else at.start,
        end_offset=at.end,
        first=at.first,
        resumed=resumed,
        shrunk=shrunk,
    )


def _total(project_id: int, source: Source, networks: Sequence[str]) -> int:
    project = Project.objects.only("allowed_networks").get(pk=project_id)
    credential = None
    if source.credentials:
        rows = Credential.objects.filter(project_id=project_id, name=source.credentials)
        credential = rows.first()
    secrets = secrets_of(source, credential)
    return asyncio.run(_ask(source, secrets, [*networks, *(project.allowed_networks or ())]))


async def _ask(source: Source, secrets: Secrets, networks: Sequence[str]) -> int:
    hasty = msgspec.structs.replace(
        source, retries=min(source.retries, 1), timeout_seconds=_TIMEOUT_SECONDS
    )
    client = client_of(
        lambda: hasty,
        secrets,
        account=Account(),
        allowed_networks=networks,
        patience=_PATIENCE,
        user_agent="Crawlyard",
    )
    try:
        return await client.total()
    finally:
        await client.close()
