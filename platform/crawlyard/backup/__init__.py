"""Backup and restore of everything that an installation cannot rebuild (docs/backup.md)."""
