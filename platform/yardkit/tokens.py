"""Signed tokens that authorise a spider for its run, its frontier or its project's pools, and an
agent for the pages of a run.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

_PREFIX: Final = "r1."
_SCOPE_PREFIX: Final = "s1."
# 128 bits: short enough for every message, too long to guess.
_HEX_CHARACTERS: Final = 32


def sign_run_token(secret: str, run: int) -> str:
    """Return the token of a run, such as ``r1.5f0c...``. Raises ``ValueError`` without a secret."""
    if not secret:
        raise ValueError("a run token needs a secret")
    digest = hmac.new(secret.encode(), f"crawlyard.run-token.v1:{run}".encode(), hashlib.sha256)
    return _PREFIX + digest.hexdigest()[:_HEX_CHARACTERS]


def verify_run_token(secret: str, run: int, token: str) -> bool:
    """Return whether ``token`` is that of ``run``, in constant time."""
    return hmac.compare_digest(
        sign_run_token(secret, run).encode(), token.encode("utf-8", "surrogatepass")
    )


def frontier_scope(frontier: int) -> str:
    """Return the scope for adding, leasing, finishing and looking up seeds of a frontier."""
    return f"frontier:{frontier}"


def manage_scope(frontier: int) -> str:
    """Return the scope for managing a frontier: drop segments, move seeds, delete it."""
    return f"manage-frontier:{frontier}"


def pools_scope(project: int) -> str:
    """Return the scope for leasing resources of a project's pools."""
    return f"pools:{project}"


def sign_scope(secret: str, scope: str) -> str:
    """Return the token of a scope, such as ``s1.9ab1...``. Raises ``ValueError`` without a
    secret.
    """
    if not secret:
        raise ValueError("a token needs a secret")
    digest = hmac.new(secret.encode(), f"crawlyard.scope-token.v1:{scope}".encode(), hashlib.sha256)
    return _SCOPE_PREFIX + digest.hexdigest()[:_HEX_CHARACTERS]


def verify_scope(secret: str, scope: str, token: str) -> bool:
    """Return whether ``token`` is that of ``scope``, in constant time."""
    return hmac.compare_digest(
        sign_scope(secret, scope).encode(), token.encode("utf-8", "surrogatepass")
    )


def sign_pages_token(secret: str, project: int, run: int) -> str:
    """Return the token of an agent for storing pages of a run, such as ``3.s1.9ab1...``.

    It holds the project, so that no database is needed to make addresses of objects. Raises
    ``ValueError`` without a secret.
    """
    return f"{project}.{sign_scope(secret, _pages_scope(project, run))}"


def pages_project(secret: str, run: int, token: str) -> int | None:
    """Return the project of a run if ``token`` is that of its pages, None if it is not."""
    project, _, signature = token.partition(".")
    if not (project.isascii() and project.isdigit() and len(project) < 19):
        return None
    number = int(project)
    return number if verify_scope(secret, _pages_scope(number, run), signature) else None


def _pages_scope(project: int, run: int) -> str:
    return f"pages:{project}:{run}"
