"""Queues of requests: Redis lists, or the broker."""
