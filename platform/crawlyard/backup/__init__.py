"""Backups of what an installation cannot rebuild, and bringing them back (docs/backup.md)."""
