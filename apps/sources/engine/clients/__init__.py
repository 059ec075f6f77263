"""Clients of record APIs."""
