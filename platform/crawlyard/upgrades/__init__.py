"""Upgrade checks: migrations that older processes cannot work with, and leftovers."""
