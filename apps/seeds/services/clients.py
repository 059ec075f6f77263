"""Clients of the seed service for processes that have the installation's secret."""

from __future__ import annotations

from django.conf import settings

from apps.runtime.services import shared_broker
from apps.seeds.models import Frontier
from yardkit.seeds import SeedClient
from yardkit.tokens import frontier_scope, manage_scope, sign_scope

# Default timeout of a call, in seconds.
TIMEOUT_SECONDS = 10.0


def client_of(
    frontier: Frontier, *, owner: str = "", timeout: float | None = None, patience: float = 0.0
) -> SeedClient:
    """Return a client to add, lease, finish and look up seeds, as spiders do.

    ``patience``: as in ``SeedClient``; web requests send once.
    """
    timeout = TIMEOUT_SECONDS if timeout is None else timeout
    token = sign_scope(settings.SECRET_KEY, frontier_scope(frontier.pk))
    return SeedClient(
        shared_broker(), frontier.pk, token, owner=owner, timeout=timeout, patience=patience
    )


def manager_of(
    frontier: Frontier, *, timeout: float | None = None, patience: float = 0.0
) -> SeedClient:
    """Return a client for ``manage`` calls only."""
    timeout = TIMEOUT_SECONDS if timeout is None else timeout
    token = sign_scope(settings.SECRET_KEY, manage_scope(frontier.pk))
    return SeedClient(shared_broker(), frontier.pk, token, timeout=timeout, patience=patience)
