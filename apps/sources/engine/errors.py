"""What may happen to a harvest."""

from __future__ import annotations


class HarvestError(Exception):
    """Base. ``code`` is stable, the text is one line for people and holds no secret."""

    code = "harvest_error"


class ApiFailed(HarvestError):
    """The record API gave no usable answer, however often it was asked."""

    code = "api_failed"

    def __init__(self, text: str, code: str = "api_failed") -> None:
        super().__init__(text)
        self.code = code


class SourceLeaseLost(HarvestError):
    """Another collector has the source, or may have it: nothing more is published."""

    code = "lease_lost"


class Interrupted(HarvestError):
    """The harvest is to end now; ``why`` is the reason."""

    code = "interrupted"

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
