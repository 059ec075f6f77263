"""Outbounds for Redis queues: a list, and a sorted set with priorities."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import redis

from apps.routing.engine.outbounds.base import (
    CLOSED,
    DELIVERED,
    Batch,
    Encoded,
    Outbound,
    Outcome,
    Sent,
    Settings,
    away,
    refused,
)
from apps.routing.engine.outbounds.parameters import Parameter, name_of, read, url_of
from apps.routing.engine.outbounds.redis_client import (
    MOST_BYTES,
    MOST_MESSAGES,
    connect,
    outcome_of,
    parts,
)
from apps.routing.engine.rules import Outbound as Rule

# Scores are double-precision numbers, which represent integers exactly up to this value.
MOST_PRIORITY: Final = 2**53
# Members with an equal score are sorted by their bytes, so the sequence number in front makes the
# order first in, first out. It is the time in microseconds, increased by at least 1 each time: the
# order is kept if the sequence key is lost, and also if the clock is set back.
_PUSH: Final = """
local now = redis.call('TIME')
local time = now[1] * 1000000 + now[2]
local last = tonumber(redis.call('GET', KEYS[2]) or '') or 0
if not (last >= time) then last = time - 1 end
if last > 9000000000000000 then
  return redis.error_reply('ERR the sequence number of the queue is out of range')
end
for i = 1, #ARGV, 2 do
  last = last + 1
  redis.call('ZADD', KEYS[1], ARGV[i], string.format('%016.0f:', last) .. ARGV[i + 1])
end
redis.call('SET', KEYS[2], string.format('%.0f', last), 'EX', 604800)
return #ARGV / 2
"""
# Push to several lists in one call. Arguments for each key: the number of normal messages, the
# number of real-time messages, then the messages. Returns for each key "" or the error text.
_PUSH_ALL: Final = """
local answers, at = {}, 1
for number, key in ipairs(KEYS) do
  local usual, urgent, fault = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), ''
  at = at + 2
  if usual > 0 then
    local answer = redis.pcall('LPUSH', key, unpack(ARGV, at, at + usual - 1))
    fault = type(answer) == 'table' and answer.err or ''
  end
  at = at + usual
  if urgent > 0 and fault == '' then
    local answer = redis.pcall('RPUSH', key, unpack(ARGV, at, at + urgent - 1))
    fault = type(answer) == 'table' and answer.err or ''
  end
  at = at + urgent
  answers[number] = fault
end
return answers
"""


class _RedisOutbound:
    """Base class of the Redis outbounds: one key on one server."""

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "url": Parameter(
            str, required=True, check=url_of(("redis", "rediss"), "redis://:password@host:6379/0")
        ),
        "key": Parameter(str, required=True, check=name_of("a key", 1024)),
    }
    default_expects_result: ClassVar[bool] = True

    def __init__(self, rule: Rule, settings: Settings) -> None:
        """Raise ``ValueError`` for parameters that ``registry.check`` rejects."""
        values = read(rule.init, self.parameters)
        self._url: str = values["url"]
        self._key: str = values["key"]
        self._timeout = settings.timeout_seconds
        self._client: Any = connect(self._url, settings.timeout_seconds, settings.client_name)
        self._is_closed = False

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        """See ``Outbound``."""
        if self._is_closed:
            return [CLOSED] * len(batch)
        work = Batch(batch)
        deadline = time.monotonic() + self._timeout
        for part in parts(self._sendable(work)):
            # Stop at the first failed part, so that a later one does not overtake it.
            if time.monotonic() > deadline:
                return work.finish(away("slow", "the batch took too long"))
            try:
                self._push(part)
            except (redis.RedisError, OSError) as error:
                return work.finish(outcome_of(error, self._url))
            work.settle(part, DELIVERED)
        return work.finish(DELIVERED)

    def depth(self) -> int | None:
        """See ``Outbound``."""
        if self._is_closed:
            return None
        try:
            return self._count()
        except (redis.RedisError, OSError):
            return None

    def close(self) -> None:
        """See ``Outbound``."""
        self._is_closed = True
        self._client.close()

    def _sendable(self, work: Batch) -> list[Encoded]:
        return work.ready

    def _push(self, part: Sequence[Encoded]) -> None:
        raise NotImplementedError

    def _count(self) -> int:
        raise NotImplementedError


class RedisListOutbound(_RedisOutbound):
    """Outbound for a list: LPUSH, and BRPOP by the consumer.

    Real-time messages are pushed to the consumer's end (RPUSH). They keep their order within a
    batch, but are consumed before those of an earlier batch.
    """

    def __init__(self, rule: Rule, settings: Settings) -> None:
        """See ``_RedisOutbound``."""
        super().__init__(rule, settings)
        self._push_all = self._client.register_script(_PUSH_ALL)

    @property
    def server(self) -> Hashable:
        """See ``BatchingOutbound``."""
        return type(self), self._url, self._timeout

    def send_with(self, batches: Sequence[tuple[Outbound, Sequence[Sent]]]) -> list[list[Outcome]]:
        """See ``BatchingOutbound``: one call for many lists costs little more than for one."""
        works: list[_Work] = []
        for outbound, batch in batches:
            if not isinstance(outbound, RedisListOutbound) or outbound._is_closed:
                return [outbound.send(mine) for outbound, mine in batches]
            works.append((outbound, batch, Batch(batch)))
        outcomes: list[list[Outcome]] = []
        for group in _groups(works):
            outcomes += self._send_group(group)
        return outcomes

    def _send_group(self, group: list[_Work]) -> list[list[Outcome]]:
        if len(group) == 1:
            return [group[0][0].send(group[0][1])]
        arguments: list[bytes | int] = []
        for _, _, work in group:
            usual, urgent = _ends(work.ready)
            arguments += (len(usual), len(urgent), *usual, *urgent)
        try:
            answers = self._push_all(
                keys=[outbound._key for outbound, _, _ in group], args=arguments
            )
        except redis.ResponseError:
            # The server does not support scripts, or the user may not run them.
            return [outbound.send(batch) for outbound, batch, _ in group]
        except (redis.RedisError, OSError) as error:
            return [work.finish(outcome_of(error, self._url)) for _, _, work in group]
        return [
            work.finish(self._fault_outcome(fault) if fault else DELIVERED)
            for (_, _, work), fault in zip(group, answers, strict=True)
        ]

    def _fault_outcome(self, fault: bytes) -> Outcome:
        return outcome_of(redis.ResponseError(fault.decode(errors="replace")), self._url)

    def _push(self, part: Sequence[Encoded]) -> None:
        usual, urgent = _ends(part)
        # In a transaction, so that a lost response means that all or none were pushed.
        with self._client.pipeline(transaction=True) as pipeline:
            if usual:
                pipeline.lpush(self._key, *usual)
            if urgent:
                pipeline.rpush(self._key, *urgent)
            pipeline.execute()

    def _count(self) -> int:
        return int(self._client.llen(self._key))


# (outbound, batch, encoded batch)
_Work = tuple[RedisListOutbound, Sequence[Sent], Batch]


def _ends(messages: Sequence[Encoded]) -> tuple[list[bytes], list[bytes]]:
    """Split messages into those to LPUSH and the real-time ones to RPUSH (reversed)."""
    usual = [message.body for message in messages if not message.sent.rt]
    urgent = [message.body for message in reversed(messages) if message.sent.rt]
    return usual, urgent


def _groups(works: Sequence[_Work]) -> Iterator[list[_Work]]:
    """Group works, in order, within the limits of one command; a larger one is alone."""
    group: list[_Work] = []
    messages = size = 0
    for work in works:
        ready = work[2].ready
        more = sum(len(message.body) for message in ready)
        if group and (messages + len(ready) > MOST_MESSAGES or size + more > MOST_BYTES):
            yield group
            group, messages, size = [], 0, 0
        group.append(work)
        messages += len(ready)
        size += more
    if group:
        yield group


class RedisPriorityOutbound(_RedisOutbound):
    """Outbound for a sorted set: ZPOPMIN returns the highest priority first, then the oldest.

    The score is the negated priority. The member is a 16-digit sequence number, a colon and the
    JSON, so that equal messages are separate members.
    """

    def __init__(self, rule: Rule, settings: Settings) -> None:
        """See ``_RedisOutbound``."""
        super().__init__(rule, settings)
        self._script = self._client.register_script(_PUSH)
        # Use the key's hash tag, or the key as the tag, so that a cluster keeps both in one slot.
        tagged = "{" in self._key and "}" in self._key.partition("{")[2]
        self._sequence = f"{self._key if tagged else '{' + self._key + '}'}:sequence"

    def _sendable(self, work: Batch) -> list[Encoded]:
        good = []
        for message in work.ready:
            if -MOST_PRIORITY <= message.sent.priority <= MOST_PRIORITY:
                good.append(message)
            else:
                text = f"priority {message.sent.priority} is beyond {MOST_PRIORITY}"
                work.settle([message], refused("bad_priority", text))
        return good

    def _push(self, part: Sequence[Encoded]) -> None:
        arguments: list[bytes | int] = []
        for message in part:
            arguments += (-message.sent.priority, message.body)
        self._script(keys=[self._key, self._sequence], args=arguments)

    def _count(self) -> int:
        return int(self._client.zcard(self._key))
