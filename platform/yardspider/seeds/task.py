"""A leased seed, its requests, and its result."""

from __future__ import annotations

from typing import Any

import msgspec

from yardkit.protocol import LeasedSeed, SeedFinish, SeedOutcome
from yardkit.protocol.seeds import GRAB, MAX_RESULT_BYTES
from yardkit.protocol.seeds import Seed as SeedMessage
from yardkit.seeds import seed_bytes

_REASON_CHARACTERS = 500


class SeedTask:
    """A leased seed. It succeeds when all of its requests succeed.

    ``data``, ``ext``, ``retry`` (failed tries before) and ``max_retry`` are the seed's;
    ``is_grab``: a client waits for the result of ``finish``. An explicit result of the spider
    takes precedence over its requests, the last one over earlier ones; it is sent once all
    requests have ended.
    """

    __slots__ = (
        "_failure",
        "_grab",
        "_outcome",
        "_result",
        "data",
        "ext",
        "found",
        "found_bytes",
        "generation",
        "key",
        "max_retry",
        "open",
        "retry",
        "seen",
        "segment",
    )

    def __init__(self, leased: LeasedSeed, generation: int) -> None:
        ext = dict(leased.ext or {})
        self._grab = str(ext.pop(GRAB, ""))
        self.data = leased.data
        self.ext: dict[str, Any] = ext
        self.retry = leased.retry
        self.max_retry = leased.max_retry
        self.segment = leased.segment
        self.key = leased.key
        self.generation = generation
        # Requests that have not ended, and the call that makes the first ones.
        self.open = 0
        # Fingerprints of its requests: another try of the seed fetches its pages again.
        self.seen: set[bytes] = set()
        self.found: list[SeedMessage] = []
        self.found_bytes = 0
        self._failure = ""
        self._outcome: SeedOutcome | None = None
        self._result: Any = None

    # --- what a spider says of it -------------------------------------------------------------

    @property
    def is_grab(self) -> bool:
        """Whether a client waits for the result."""
        return bool(self._grab)

    def finish(self, result: Any = None) -> None:
        """Let it succeed, whatever its requests do.

        Args:
            result: for the client that has grabbed the seed; JSON types.

        Raises:
            ValueError: the result cannot be sent.
        """
        try:
            size = len(msgspec.msgpack.encode(result))
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"the result of a seed cannot be sent: {error}") from error
        if size > MAX_RESULT_BYTES:
            raise ValueError(f"the result of a seed has {size} bytes, {MAX_RESULT_BYTES} may be")
        self._outcome, self._result = SeedOutcome.SUCCESS, result

    def fail(self, reason: str = "") -> None:
        """Fail this try: the seed is tried again while it has tries left."""
        self._outcome, self._failure = SeedOutcome.FAILURE, reason[:_REASON_CHARACTERS]

    def give_up(self, reason: str = "") -> None:
        """Fail the seed without another try."""
        self._outcome, self._failure = SeedOutcome.GIVEN_UP, reason[:_REASON_CHARACTERS]

    def ignore(self) -> None:
        """End the seed as ignored: neither a success nor a failure."""
        self._outcome = SeedOutcome.IGNORED

    # --- the engine's ------------------------------------------------------------------------

    def find(self, seed: SeedMessage) -> None:
        """Keep a found seed; it is added with the finish."""
        self.found.append(seed)
        self.found_bytes += seed_bytes(seed)

    def request_failed(self, reason: str) -> None:
        """Note a failed request; the first reason is kept."""
        self._failure = self._failure or reason[:_REASON_CHARACTERS]

    @property
    def outcome(self) -> SeedOutcome:
        """The present outcome: an exception is a failed try."""
        if self._outcome is not None:
            return self._outcome
        return SeedOutcome.FAILURE if self._failure else SeedOutcome.SUCCESS

    @property
    def failure(self) -> str:
        """The first reason of a failure; "" for none."""
        return self._failure

    def finished(self) -> SeedFinish:
        """Return the finish as a message."""
        return SeedFinish(
            self.segment, self.key, self.generation, self.outcome, self._grab, self._result
        )

    def __repr__(self) -> str:
        return f"<SeedTask {self.data}>"
