"""Audit trail, roles and tokens, for all other apps."""

from apps.access.services.audit import changes, label_of, mask, record, snapshot
from apps.access.services.clients import client_address, parsed_address, stands_in
from apps.access.services.filters import clean_query, delete_filter, rename_filter, save_filter
from apps.access.services.people import keep_one_admin, password_was_set, set_role
from apps.access.services.request_ids import current_request_id, request_id_scope, usable_request_id
from apps.access.services.roles import (
    ALL,
    AllProjects,
    has_role,
    has_role_somewhere,
    project_id_of,
    project_ids,
    projects_by_role,
    require_role,
    role_to_read,
)
from apps.access.services.tokens import (
    MAX_NETWORKS,
    MAX_OVERLAP,
    NewToken,
    checked_networks,
    create_token,
    find_token,
    known_areas,
    revoke_token,
    rotate_token,
    touch_token,
)
from apps.access.services.visibility import may_read_trail, person_of, projects_of

__all__ = [
    "ALL",
    "MAX_NETWORKS",
    "MAX_OVERLAP",
    "AllProjects",
    "NewToken",
    "changes",
    "checked_networks",
    "clean_query",
    "client_address",
    "create_token",
    "current_request_id",
    "delete_filter",
    "find_token",
    "has_role",
    "has_role_somewhere",
    "keep_one_admin",
    "known_areas",
    "label_of",
    "mask",
    "may_read_trail",
    "parsed_address",
    "password_was_set",
    "person_of",
    "project_id_of",
    "project_ids",
    "projects_by_role",
    "projects_of",
    "record",
    "rename_filter",
    "request_id_scope",
    "require_role",
    "revoke_token",
    "role_to_read",
    "rotate_token",
    "save_filter",
    "set_role",
    "snapshot",
    "stands_in",
    "touch_token",
    "usable_request_id",
]
