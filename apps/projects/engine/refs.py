"""Allow-list of names of tags, branches and commits that may be passed to git.

Stricter than git's own rules: excludes everything that a shell, an option parser, a URL or the
revision syntax (``^``, ``~``, ``@{``) could interpret.
"""

from __future__ import annotations

import re
from typing import Final

from apps.projects.engine.refusals import ProjectInputError

MAX_REF_BYTES: Final = 200
_MARKS: Final = frozenset("._-+/")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class TagRefused(ProjectInputError):
    """Base class of the errors for invalid tags."""


class RefRefused(TagRefused):
    """The name may not be passed to git."""


def check_tag(tag: str, *, colon_allowed: bool = False) -> str:
    """Return ``tag`` if it is allowed. Raises ``RefRefused``.

    ``colon_allowed``: accept the form ``release:name:version``, which git itself rejects.
    """
    _check(tag, _MARKS | {":"} if colon_allowed else _MARKS)
    if tag.startswith("refs/"):
        raise RefRefused("ref_has_prefix", ref=tag)
    return tag


def check_branch(branch: str) -> str:
    """Return ``branch`` if it is allowed. Raises ``RefRefused``."""
    _check(branch, _MARKS)
    if branch.startswith("refs/") or branch == "HEAD":
        raise RefRefused("ref_has_prefix", ref=branch)
    return branch


def check_commit(commit: str) -> str:
    """Return a full commit ID in lower case. Raises ``RefRefused``."""
    lower = commit.lower()
    if not _COMMIT.fullmatch(lower):
        raise RefRefused("commit_malformed", commit=commit)
    return lower


def _check(ref: str, marks: frozenset[str]) -> None:
    if not ref:
        raise RefRefused("ref_empty")
    if len(ref.encode("utf-8", "replace")) > MAX_REF_BYTES:
        raise RefRefused("ref_too_long", limit=MAX_REF_BYTES)
    strange = next((char for char in ref if not (char.isalnum() or char in marks)), None)
    if strange is not None:
        raise RefRefused("ref_character", ref=ref, character=strange)
    if ref.startswith("-"):
        raise RefRefused("ref_like_option", ref=ref)
    parts = ref.split("/")
    if any(part.startswith(".") or part.endswith((".", ".lock")) or not part for part in parts):
        raise RefRefused("ref_malformed", ref=ref)
    if ".." in ref:
        raise RefRefused("ref_malformed", ref=ref)
