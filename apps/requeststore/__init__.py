"""Stored requests: durable, sharded, expiring, found again by id."""
