"""Inbound for Kafka topics, with the consumer of librdkafka; requires the extra ``kafka``.

Kafka stores one offset for each partition, so only the contiguous prefix of the acknowledged items
is committed. When a partition is reassigned to another consumer, its unfinished items are
redelivered there; late acknowledgements are ignored and counted.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from apps.routing.engine.inbounds.base import (
    BadInit,
    Context,
    Finding,
    Handle,
    InboundClosed,
    Parameter,
    Taken,
)
from apps.routing.engine.inbounds.contiguous import Contiguous
from apps.routing.engine.inbounds.kafka_settings import (
    check_settings,
    effective,
    explain,
    hide_secrets,
    is_installed,
)
from yardkit.backoff import Backoff

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

logger = logging.getLogger(__name__)

NOT_INSTALLED: Final = "the extra is not installed: pip install '.[kafka]'"
# Longest single wait inside the library; it bounds the delay until ``close`` is noticed.
_SLICE_SECONDS: Final = 0.5
# Minimum wait for another worker's poll: without it a topic with items would look empty.
_SHARE_SECONDS: Final = 0.1
_PROBE_SECONDS: Final = 0.5
_ASK_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 5.0
# Part of ``_CLOSE_SECONDS`` to wait until the partitions are revoked.
_LEAVE_SECONDS: Final = 3.0

Place = tuple[str, int]


class KafkaPosition(NamedTuple):
    """Handle of an item. ``generation`` distinguishes assignments of the same partition."""

    topic: str
    partition: int
    generation: int
    offset: int


@dataclass(slots=True)
class _Part:
    """Partition that is assigned to this consumer."""

    generation: int
    log: Contiguous = field(default_factory=Contiguous)
    # Taken and unfinished items, by offset.
    out: dict[int, Taken] = field(default_factory=dict)


class KafkaInbound:
    """Inbound for Kafka topics. Calling ``take`` also keeps the consumer in its group."""

    PARAMETERS: ClassVar[tuple[Parameter, ...]] = (
        Parameter(
            "consumer_settings",
            dict,
            "librdkafka's settings; bootstrap.servers and group.id are required",
            required=True,
            secret=True,
        ),
        Parameter("topics", list, "the topics", required=True),
    )

    @classmethod
    def check(cls, init: Mapping[str, Any]) -> list[tuple[str, Finding]]:
        findings = [
            ("consumer_settings", finding) for finding in check_settings(init["consumer_settings"])
        ]
        topics = init["topics"]
        if not topics or not all(topics) or len(set(topics)) < len(topics):
            text = "name at least one topic, and each once"
            findings.append(("topics", Finding("bad_parameter", text)))
        if not is_installed():
            findings.append(("", Finding("not_installed", NOT_INSTALLED)))
        return findings

    def __init__(self, context: Context, init: Mapping[str, Any]) -> None:
        if not is_installed():
            raise BadInit(NOT_INSTALLED)
        import confluent_kafka

        self._library = confluent_kafka
        self._settings: Mapping[str, Any] = init["consumer_settings"]
        self._topics: list[str] = list(init["topics"])
        self._limit = context.in_flight
        # One thread polls while another may query the depth; ``close`` waits for both.
        self._polling = threading.Lock()
        self._asking = threading.Lock()
        # Guards the attributes below. Reentrant, as the library calls back from poll and close.
        self._state = threading.RLock()
        self._generations = itertools.count(1)
        self._parts: dict[Place, _Part] = {}
        self._highest: dict[Place, int] = {}
        self._spare: deque[Taken] = deque()
        self._is_paused = False
        self._problem = ""
        self._backoff = Backoff()
        self._probe_at = 0.0
        self._late = 0
        self._closed = threading.Event()
        try:
            self._consumer: Consumer = confluent_kafka.Consumer(
                {
                    **effective(self._settings, f"{context.consumer} {context.name}"),
                    "error_cb": self._note,
                    "logger": _library_logger(),
                }
            )
            self._consumer.subscribe(
                self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._gone
            )
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            raise BadInit(hide_secrets(explain(error), self._settings)) from None

    @property
    def problem(self) -> str:
        return self._problem

    @property
    def late(self) -> int:
        return self._late

    def take(self, most: int, timeout: float) -> list[Taken]:
        deadline = time.monotonic() + timeout
        if not self._polling.acquire(timeout=max(timeout, _SHARE_SECONDS)):
            return []
        try:
            while True:
                if self._closed.is_set():
                    raise InboundClosed(", ".join(self._topics))
                left = deadline - time.monotonic()
                taken = self._poll(most, max(0.0, min(left, _SLICE_SECONDS)))
                if taken or left <= 0:
                    return taken
        finally:
            self._polling.release()

    def ack(self, handles: Sequence[Handle]) -> None:
        moved: dict[Place, int] = {}
        with self._state:
            for handle in handles:
                part = self._part_of(handle)
                if part is None or not isinstance(handle, KafkaPosition):
                    self._late += 1
                elif part.out.pop(handle.offset, None) is not None and part.log.finish(
                    handle.offset
                ):
                    assert part.log.safe is not None  # noqa: S101 - it has just moved
                    moved[handle[:2]] = part.log.safe
            if moved:
                self._store(moved)

    def back(self, handles: Sequence[Handle]) -> None:
        """See ``base.Inbound``.

        The items stay with this consumer until it closes or loses the partition.
        """
        with self._state:
            given: list[Taken] = []
            for handle in sorted(handle for handle in handles if isinstance(handle, KafkaPosition)):
                part = self._part_of(handle)
                taken = part.out.pop(handle.offset, None) if part is not None else None
                if taken is not None:
                    given.append(replace(taken, redelivered=True))
            self._spare.extendleft(reversed(given))

    def depth(self) -> int | None:
        """Return the number of items that the whole group has not taken yet.

        For the partitions of other consumers, all items that are not committed are counted.
        """
        with self._asking:
            # Do not query an unreachable server: the caller would only wait for the timeout.
            if self._closed.is_set() or self._problem:
                return None
            try:
                return self._depth(time.monotonic() + _ASK_SECONDS)
            except self._library.KafkaException as error:
                logger.debug("no depth of %s: %s", self._topics, error)
                return None

    def check_running(self, threads: int) -> list[Finding]:
        """Warn if there are more threads than partitions, because the surplus is idle."""
        with self._asking:
            if self._closed.is_set() or self._problem:
                return []
            try:
                count = len(self._all_partitions(time.monotonic() + _ASK_SECONDS))
            except self._library.KafkaException:
                return []
        if not 0 < count < threads:
            return []
        text = (
            f"{threads} threads, but {', '.join(self._topics)}: {count} partition(s);"
            f" at most {count} threads have work"
        )
        return [Finding("threads_over_partitions", text)]

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        # In a thread, because a broker that hangs blocks the library but must not block the stop.
        closer = threading.Thread(target=self._close, name="closes a Kafka consumer", daemon=True)
        closer.start()
        closer.join(_CLOSE_SECONDS)
        if closer.is_alive():
            logger.warning("Kafka did not let go of %s within %g s", self._topics, _CLOSE_SECONDS)

    # --- polling -------------------------------------------------------------------------------

    def _poll(self, most: int, wait: float) -> list[Taken]:
        if self._problem and time.monotonic() >= self._probe_at:
            self._probe()
        with self._state:
            count = min(most, self._limit - sum(len(part.out) for part in self._parts.values()))
            has_spare = bool(self._spare)
        self._pause(on=count < 1)
        if count < 1 or has_spare:
            # No item is needed, but the consumer must poll to remain in its group.
            first = self._consumer.poll(wait if count < 1 else 0)
            messages = [first] if first is not None else []
        else:
            first = self._consumer.poll(wait)
            messages = [first] if first is not None else []
            if messages and count > 1:
                messages += self._consumer.consume(count - 1, timeout=0)
        with self._state:
            self._spare.extend(
                taken for message in messages if (taken := self._received(message)) is not None
            )
            return self._hand_out(max(0, count))

    def _hand_out(self, count: int) -> list[Taken]:
        handed: list[Taken] = []
        while self._spare and len(handed) < count:
            taken = self._spare.popleft()
            part = self._part_of(taken.handle)
            if part is not None and isinstance(taken.handle, KafkaPosition):
                part.out[taken.handle.offset] = taken
                handed.append(taken)
        return handed

    def _received(self, message: Message) -> Taken | None:
        error = message.error()
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error is not None:
            self._note(error)
            return None
        if topic is None or partition is None or offset is None:
            return None
        self._problem = ""
        place = (topic, partition)
        part = self._parts.get(place)
        if part is None or (part.log.behind is not None and offset < part.log.behind):
            # The assignment was not announced, or the server lost the end of the log and offsets
            # were reset: earlier handles are invalid in the new generation.
            part = self._parts[place] = _Part(next(self._generations))
        part.log.add(offset, offset + 1)
        again = offset <= self._highest.get(place, -1)
        self._highest[place] = max(offset, self._highest.get(place, -1))
        handle = KafkaPosition(topic, partition, part.generation, offset)
        where = f"{topic}[{partition}]@{offset}"
        # With the timestamp, because offsets restart at 0 if a topic is deleted and recreated.
        identity = f"{where} {message.timestamp()[1]}"
        return Taken(message.value() or b"", handle, where, again, identity)

    def _pause(self, *, on: bool) -> None:
        if on == self._is_paused:
            return
        assigned = self._consumer.assignment()
        if on:
            self._consumer.pause(assigned)
        else:
            self._consumer.resume(assigned)
        self._is_paused = on

    def _part_of(self, handle: Handle) -> _Part | None:
        """Return the partition of a handle, if it is still in the same assignment."""
        if not isinstance(handle, KafkaPosition):
            return None
        part = self._parts.get((handle.topic, handle.partition))
        return part if part is not None and part.generation == handle.generation else None

    def _store(self, moved: Mapping[Place, int]) -> None:
        offsets = [self._library.TopicPartition(*place, safe) for place, safe in moved.items()]
        try:
            self._consumer.store_offsets(offsets=offsets)
        except (self._library.KafkaException, RuntimeError) as error:
            # Closed, or the partition is being revoked: its items are redelivered.
            logger.debug("cannot store %s: %s", offsets, error)

    # --- callbacks of the library --------------------------------------------------------------

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with self._state:
            for partition in partitions:
                self._parts[partition.topic, partition.partition] = _Part(next(self._generations))
            # Newly assigned partitions are not paused.
            self._is_paused = False

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit the finished offsets before the partitions go to another consumer."""
        offsets = [
            self._library.TopicPartition(*place, part.log.safe)
            for place, part in self._forget(partitions)
            if part.log.safe is not None
        ]
        if not offsets:
            return
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except self._library.KafkaException as error:
            logger.info("not committed, so it comes again: %s: %s", offsets, explain(error))

    def _gone(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Forget lost partitions without a commit: another consumer already has their offsets."""
        self._forget(partitions)

    def _forget(self, partitions: list[TopicPartition]) -> list[tuple[Place, _Part]]:
        with self._state:
            places = [(partition.topic, partition.partition) for partition in partitions]
            return [(place, self._parts.pop(place)) for place in places if place in self._parts]

    def _note(self, error: KafkaError) -> None:
        text = f"Kafka: {hide_secrets(error.str(), self._settings)}"
        if not self._problem:
            logger.warning("%s: %s", ", ".join(self._topics), text)
        self._problem = text
        self._probe_at = time.monotonic() + self._backoff.seconds()

    # --- queries to the server -----------------------------------------------------------------

    def _probe(self) -> None:
        """Query the server, because the library reports lost connections but not recovered ones."""
        try:
            self._all_partitions(time.monotonic() + _PROBE_SECONDS)
        except self._library.KafkaException as error:
            first = error.args[0]
            if isinstance(first, self._library.KafkaError):
                self._note(first)
        else:
            self._problem = ""
            self._backoff.reset()

    def _all_partitions(self, deadline: float) -> list[Place]:
        places: list[Place] = []
        for topic in self._topics:
            left = max(0.05, deadline - time.monotonic())
            metadata = self._consumer.list_topics(topic, timeout=left).topics[topic]
            if metadata.error is not None:
                raise self._library.KafkaException(metadata.error)
            places += [(topic, number) for number in metadata.partitions]
        return places

    def _depth(self, deadline: float) -> int:
        places = [self._library.TopicPartition(*place) for place in self._all_partitions(deadline)]
        left = max(0.05, deadline - time.monotonic())
        waiting = 0
        for committed in self._consumer.committed(places, timeout=left):
            left = max(0.05, deadline - time.monotonic())
            low, high = self._consumer.get_watermark_offsets(committed, timeout=left)
            with self._state:
                part = self._parts.get((committed.topic, committed.partition))
                spare = sum(self._part_of(taken.handle) is part for taken in self._spare)
                behind = part.log.behind if part is not None else None
            spare = spare if part is not None else 0
            known = behind if behind is not None else committed.offset
            waiting += max(0, high - max(low, known)) + spare
        return waiting

    def _close(self) -> None:
        with self._polling, self._asking:
            # Unsubscribe before closing: if a rebalance occurs during close, the library queries
            # the ended group in an endless loop while it holds the interpreter lock (GIL).
            self._consumer.unsubscribe()
            deadline = time.monotonic() + _LEAVE_SECONDS
            while time.monotonic() < deadline:
                if self._consumer.poll(0.05) is None and not self._parts:
                    break
            self._consumer.close()


def _library_logger() -> logging.Logger:
    """Return the logger of librdkafka without its "FAIL" lines.

    librdkafka logs many of these for each lost connection; ``_note`` logs one.
    """
    library_logger = logging.getLogger(f"{__name__}.librdkafka")
    if not library_logger.filters:
        library_logger.addFilter(lambda record: not record.getMessage().startswith("FAIL "))
    return library_logger
