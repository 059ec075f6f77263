"""Modules of the management commands; the name of a module is that of its command."""
