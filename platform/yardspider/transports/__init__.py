"""Transports of requests and answers: the platform, this process, or a test."""
