"""Leases: of a dataset, under which its table is changed; of a delivery, see ``delivery``."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from apps.datasets.models import Dataset, Delivery
from apps.runtime.errors import LeaseLost
from apps.runtime.services import is_gone

LEASE: Final = timedelta(minutes=5)
RENEW_SECONDS: Final = 30.0
_HOST: Final = socket.gethostname()
OWNER: Final = f"{_HOST} {os.getpid()}"
# Set while this process ends: pools of threads refuse work then, by errors of any type.
ENDING: Final = threading.Event()


class HeldDataset:
    """A dataset that this process holds. ``until`` is when its lease ends after the release."""

    def __init__(self, dataset: Dataset, generation: int, now: datetime) -> None:
        self.dataset = dataset
        self.until = now
        self._generation = generation
        self._now = now
        self._started = self._renewed = time.monotonic()

    def check(self) -> None:
        """Renew the lease if it was not renewed for a while. Raises ``LeaseLost``."""
        if time.monotonic() - self._renewed >= RENEW_SECONDS:
            self.confirm()

    def confirm(self) -> None:
        """Renew the lease. Raises ``LeaseLost``."""
        elapsed = timedelta(seconds=time.monotonic() - self._started)
        until = self._now + elapsed + LEASE
        if not Dataset.objects.held(self.dataset.pk, self._generation).renew(until=until):
            raise LeaseLost(f"another process has claimed dataset {self.dataset.pk}")
        self._renewed = time.monotonic()

    def release(self) -> None:
        """End the lease, unless another process has it."""
        Dataset.objects.held(self.dataset.pk, self._generation).release(until=self.until)


@contextmanager
def hold(dataset_id: int, now: datetime) -> Iterator[HeldDataset | None]:
    """Claim a dataset for the block; None if another process has it, or it is gone."""
    dataset = Dataset.objects.filter(pk=dataset_id).first()
    generation = None
    if dataset is not None:
        free = Dataset.objects.expired(now)
        generation = free.claim(dataset.pk, dataset.generation, until=now + LEASE, owner=OWNER)
    if dataset is None or generation is None:
        yield None
        return
    held = HeldDataset(dataset, generation, now)
    try:
        yield held
    finally:
        held.release()


def release_dead(*, now: datetime) -> int:
    """End the leases of processes of this host that were killed; return their number.

    To be called before this process has claimed anything. A process that only seems to be gone is
    fenced by the next claim.
    """
    released = 0
    for rows in (Dataset.objects.all(), Delivery.objects.all()):
        held = rows.exclude(owner="").values_list("pk", "generation", "owner")
        for pk, generation, owner in held:
            host, _, pid = owner.rpartition(" ")
            if pid.isdecimal() and is_gone(host, int(pid), of=_HOST):
                released += rows.held(pk, generation).release(until=now)
    return released
