"""One consumer of one queue in a broker file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from yardkit.broker import traffic
from yardkit.broker.base import Delivery
from yardkit.broker.echoes import echo_messages
from yardkit.broker.inbox import Inbox
from yardkit.broker.sqlite_operations import AckOperation, DeadLetterOperation, Publish
from yardkit.broker.sqlite_records import SqliteTag, dead_letter_delivery

if TYPE_CHECKING:
    from yardkit.broker.sqlite_worker import SqliteWorker

# How long a consumer leaves the rest of a queue to the others before it takes more than its
# share: they may have no room for it.
_POLITE_SECONDS = 0.005


class SqliteSubscription:
    """Subscription in a broker file; see ``yardkit.broker.base.Subscription``."""

    def __init__(
        self, worker: SqliteWorker, queue: str, prefetch: int, on_ready: Callable[[], None] | None
    ) -> None:
        self._worker = worker
        self._queue = queue
        self._prefetch = prefetch
        self._inbox = Inbox(on_ready, self._echo)
        # From here on: the I/O thread's alone.
        self.consumer_id = 0
        self.queue_id = 0
        self._handed_out: set[SqliteTag] = set()
        self._may_have_news = False
        self._not_before = 0.0
        self._is_cancelled = False

    @property
    def queue(self) -> str:
        return self._queue

    def take(self, limit: int = 100, timeout: float = 0.0) -> list[Delivery]:
        return self._inbox.take(limit, timeout)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        traffic.settled(self._queue, len(deliveries))
        self._finish(deliveries, give_back=False)

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        self._finish(deliveries, give_back=True)

    def _finish(self, deliveries: Sequence[Delivery], *, give_back: bool) -> None:
        tags = [delivery.tag for delivery in deliveries if isinstance(delivery.tag, SqliteTag)]
        if tags:
            self._worker.submit(AckOperation(self, tags, give_back))

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        if isinstance(delivery.tag, SqliteTag):
            traffic.settled(self._queue, 1)
            envelope = dead_letter_delivery(delivery, reason=reason, died_at=time.time())
            self._worker.submit(DeadLetterOperation(self, delivery.tag, envelope))

    def _echo(self, asked: list[Delivery]) -> None:
        if answers := echo_messages(asked):
            self._worker.submit(Publish(answers, time.monotonic()))
        self._finish(asked, give_back=False)

    def cancel(self) -> None:
        self._worker.let_be(self)
        self._inbox.end()

    def close(self) -> None:
        self._inbox.close(f"the subscription of {self._queue!r} is closed")
        self._worker.unsubscribe(self)

    # --- the I/O thread's side -----------------------------------------------------------------

    def attach(self, consumer_id: int, queue_id: int) -> None:
        """Note the consumer's row."""
        self.consumer_id = consumer_id
        self.queue_id = queue_id
        self.look_again()

    def detach(self) -> None:
        """Forget the consumer or the connection: open deliveries are void."""
        self.consumer_id = self.queue_id = 0
        self._handed_out.clear()
        self._inbox.clear()

    def shut(self, because: str) -> None:
        """Fail waiting callers: the broker is closed."""
        self._inbox.close(because)

    def claim_no_more(self) -> None:
        """Stop claiming; claimed deliveries stay."""
        self._is_cancelled = True

    def settle(self, tag: SqliteTag) -> bool:
        """Return whether this delivery was still open, and close it."""
        if tag not in self._handed_out:
            return False
        self._handed_out.remove(tag)
        return True

    def look_again(self) -> None:
        """Claim again: the queue may have messages."""
        self._may_have_news = True
        self._not_before = 0.0

    @property
    def credit(self) -> int:
        """Return how many more deliveries the prefetch allows."""
        if self._is_cancelled or not self.consumer_id:
            return 0
        return self._prefetch - len(self._handed_out)

    @property
    def is_idle(self) -> bool:
        """Whether it has room and assumes an empty queue."""
        return self.credit > 0 and not self._may_have_news

    def claims_in(self, now: float) -> float | None:
        """Return the seconds until its next claim; None: after news or acknowledgements."""
        if not self._may_have_news or self.credit <= 0:
            return None
        return max(self._not_before - now, 0.0)

    def accept(self, deliveries: Iterable[Delivery], *, asked: int, alone: bool) -> None:
        """Take over claimed deliveries."""
        batch = list(deliveries)
        self._handed_out.update(
            delivery.tag for delivery in batch if isinstance(delivery.tag, SqliteTag)
        )
        if len(batch) < asked:
            # All there was, or its share of it.
            self._may_have_news = bool(batch) and not alone
            self._not_before = time.monotonic() + _POLITE_SECONDS
        if batch:
            self._inbox.put(batch)
