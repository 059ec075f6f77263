"""Creation of API clients from the settings of a source."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

from apps.sources.engine.clients.api_caller import Account, ApiCaller, RetryBackoff
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
    patience: RetryBackoff,
    user_agent: str,
    paced: bool = True,
) -> RecordClient:
    """Create a client; rate limit, retries and paths follow later changes of the settings.

    ``paced=False`` disables the rate limit.
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
    """Decrypt the credentials. Raises ``ApiFailed`` if they do not exist."""
    if credential is None:
        if source.credentials:
            raise ApiFailed(f"credentials {source.credentials} do not exist", "no_credentials")
        return Secrets()
    try:
        headers = json.loads(credential.headers) if credential.headers else {}
    except ValueError:
        headers = {}
    return Secrets(credential.username, credential.password, credential.token, dict(headers))
