"""Writes of credentials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction
from django.utils.translation import gettext_lazy as _

from apps.access.models import User
from apps.access.services import record
from apps.sources.errors import BadCredential, CredentialExists, CredentialInUse
from apps.sources.models import Credential
from apps.sources.queries import book
from yardkit.names import SLUG, is_header_value, is_token

SECRETS: Final = ("username", "password", "token", "headers")


@transaction.atomic
def save_credential(
    *,
    project_id: int,
    name: str,
    values: Mapping[str, str],
    actor: User | None,
    actor_label: str = "",
    new: bool = False,
) -> Credential:
    """Create or change credentials; secrets missing in ``values`` stay.

    Raises ``BadCredential``, and ``CredentialExists`` if ``new`` credentials have a taken name.
    """
    if not SLUG.fullmatch(name):
        text = _("Small letters, digits, '-' and '_' only, a letter first.")
        raise BadCredential(fields={"name": [text]})
    _check_headers(values.get("headers", ""))
    row, created = Credential.objects.get_or_create(project_id=project_id, name=name)
    if new and not created:
        raise CredentialExists(fields={"name": [name]})
    before = {"set": _set_fields(row)}
    changed = [field for field in SECRETS if field in values]
    for field in changed:
        setattr(row, field, values[field])
    row.save(update_fields=[*changed, "updated_at"])
    record(
        actor=actor,
        action="sources.add_credential" if created else "sources.change_credential",
        obj=row,
        before=None if created else before,
        after={"changed": ", ".join(changed)},
        actor_label=actor_label,
    )
    return row


@transaction.atomic
def delete_credential(*, credential: Credential, actor: User | None, actor_label: str = "") -> None:
    """Delete credentials. Raises ``CredentialInUse`` while a source uses them."""
    sources = book(credential.project_id).sources
    users = [name for name, source in sources.items() if source.credentials == credential.name]
    if users:
        raise CredentialInUse(fields={"credentials": [", ".join(users)]})
    record(
        actor=actor,
        action="sources.delete_credential",
        obj=credential,
        before={"set": _set_fields(credential)},
        actor_label=actor_label,
    )
    credential.delete()


def _set_fields(row: Credential) -> str:
    """Return the names of the fields that are set; their values are never shown."""
    return ", ".join(field for field in SECRETS if getattr(row, field))


def _check_headers(text: str) -> None:
    if not text:
        return
    try:
        headers: Any = json.loads(text)
    except ValueError:
        headers = None
    if not isinstance(headers, dict) or not all(
        is_token(name, 100) and is_header_value(value, 4000) for name, value in headers.items()
    ):
        # Not included in the error: it may be a token.
        text_ = _("Enter a JSON object of header names and ASCII values.")
        raise BadCredential(fields={"headers": [text_]})
