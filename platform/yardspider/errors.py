"""What the SDK raises on purpose. The text of each is one line for the person who reads the log."""

from __future__ import annotations


class YardspiderError(Exception):
    """Base of everything the SDK raises on purpose."""


class BadInput(YardspiderError, ValueError):
    """A spider, a setting or an address that cannot work; says which and how to mend it."""


class RunFailed(YardspiderError):
    """The run cannot go on: no agents, no broker, no answers, a ``start`` that raised."""


class TransportLost(RunFailed):
    """The way to the agents is gone for good, after every retry."""


class ReportLost(YardspiderError):
    """Counters that nobody confirmed. Harmless: they are absolute, the next ones replace them."""
