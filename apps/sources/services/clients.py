"""From the settings of a source to a client of its API."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

from apps.sources.engine.clients.api_caller import Account, ApiCaller, Patience
from apps.sources.engine.clients.base import RecordClient, Secrets
from apps.sources.engine.clients.json_api import JsonClient
from apps.sources.engine.clients.octoparse import OctoparseClient
from apps.sources.engine.errors import ApiFailed
from apps.sources.engine.settings import Source, SourceKind
from apps.sources.models import Credential


def client_of(
    source: Callable[[], Source],
    secrets: Secrets,
    *,
    account: Account,
    allowed_networks: Sequence[str],
    patience: Patience,
    user_agent: str,
    paced: bool = True,
) -> RecordClient:
    """A client; its pace, its retries and its records follow the settings as they change.

    ``paced`` False asks as fast as it can.
    """
    now = source()
    asker = ApiCaller(
        account=account,
        rate=lambda: source().rate_limit if paced else math.inf,
        retries=lambda: source().retries,
        timeout_seconds=now.timeout_seconds,
        allowed_networks=list(allowed_networks),
        patience=patience,
        user_agent=user_agent,
    )
    if now.kind is SourceKind.OCTOPARSE:
        return OctoparseClient(now, secrets, asker)
    return JsonClient(now, secrets, asker)


def secrets_of(source: Source, credential: Credential | None) -> Secrets:
    """What the credentials hold. Raises ``ApiFailed`` for some that are missing."""
    if credential is None:
        if source.credentials:
            raise ApiFailed(f"there are no credentials {source.credentials}", "no_credentials")
        return Secrets()
    try:
        headers = json.loads(credential.headers) if credential.headers else {}
    except ValueError:
        headers = {}
    return Secrets(credential.username, credential.password, credential.token, dict(headers))
