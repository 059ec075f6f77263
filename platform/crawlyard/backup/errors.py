"""What goes wrong, in one line for the person at the keyboard; no text holds a password."""

from __future__ import annotations


class BackupError(Exception):
    """Base of them."""


class Damaged(BackupError):
    """A backup that is not what was written: which file, and where in it."""


class Refused(BackupError):
    """It would do harm here: what, and how to go on."""
