"""Tests of yardkit.items."""
