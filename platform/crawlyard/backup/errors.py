"""Errors of backup and restore: one line for the operator, without passwords."""

from __future__ import annotations


class BackupError(Exception):
    """Base class of errors of backup and restore."""


class Damaged(BackupError):
    """A backup that differs from its checksums: the file and the position."""


class RestoreRefused(BackupError):
    """Refused because it would destroy data: the reason and how to continue."""
