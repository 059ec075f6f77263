"""A download command in work, and what became of each of its requests."""

from __future__ import annotations

from collections.abc import Callable

from yardkit.broker import Delivery


class Work:
    """One command: acknowledged once every request in it is answered or given up."""

    __slots__ = ("_left", "_on_done", "delivery", "reply_to", "run", "void_at")

    def __init__(
        self,
        *,
        delivery: Delivery,
        run: int,
        reply_to: str,
        requests: int,
        void_at: float,
        on_done: Callable[[Delivery], None],
    ) -> None:
        self.delivery = delivery
        self.run = run
        self.reply_to = reply_to
        self.void_at = void_at
        self._left = requests
        self._on_done = on_done

    def settle(self, requests: int = 1) -> None:
        """So many more of its requests are done with."""
        self._left -= requests
        if self._left == 0:
            self._on_done(self.delivery)
