"""Errors of the SDK. The text of each is one line for the reader of the log."""

from __future__ import annotations


class YardspiderError(Exception):
    """Base class of the errors of the SDK."""


class BadInput(YardspiderError, ValueError):
    """A spider, setting or address that cannot work; the text says which, and the remedy."""


class RunFailed(YardspiderError):
    """The run cannot go on: no agents, no broker, no answers, an exception in ``start``."""


class TransportLost(RunFailed):
    """The connection to the platform is lost, after all retries."""


class ReportLost(YardspiderError):
    """Counters were not confirmed. Harmless: they are absolute, the next ones replace them."""
