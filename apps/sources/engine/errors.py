"""Errors of an import."""

from __future__ import annotations


class HarvestError(Exception):
    """Base class. ``code`` is stable; the text is one line for people and has no secret."""

    code = "harvest_error"


class ApiFailed(HarvestError):
    """The record API returned no usable response, after all retries."""

    code = "api_failed"

    def __init__(self, text: str, code: str = "api_failed") -> None:
        super().__init__(text)
        self.code = code


class SourceLeaseLost(HarvestError):
    """Another collector has or may have the lease: publishing must stop."""

    code = "lease_lost"


class Interrupted(HarvestError):
    """The import must end now; ``why`` is the reason."""

    code = "interrupted"

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
