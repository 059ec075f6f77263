"""What this app does for all others: the audit trail, roles, tokens, the first admin."""

from apps.access.services.audit import changes, mask, record, snapshot
from apps.access.services.people import (
    ensure_admin,
    keep_one_admin,
    password_was_set,
    set_role,
)
from apps.access.services.request_ids import current_request_id, request_id_scope, usable_request_id
from apps.access.services.roles import (
    ALL,
    AllProjects,
    has_role,
    has_role_somewhere,
    project_id_of,
    project_ids,
    require_role,
)
from apps.access.services.tokens import (
    NewToken,
    create_token,
    find_token,
    known_areas,
    revoke_token,
    touch_token,
)

__all__ = [
    "ALL",
    "AllProjects",
    "NewToken",
    "changes",
    "create_token",
    "current_request_id",
    "ensure_admin",
    "find_token",
    "has_role",
    "has_role_somewhere",
    "keep_one_admin",
    "known_areas",
    "mask",
    "password_was_set",
    "project_id_of",
    "project_ids",
    "record",
    "request_id_scope",
    "require_role",
    "revoke_token",
    "set_role",
    "snapshot",
    "touch_token",
    "usable_request_id",
]
