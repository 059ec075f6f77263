"""Client of the seed service, used by spiders, routing rules and the control plane."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from yardkit import topology
from yardkit.broker.base import Broker, BrokerUnavailable, Outgoing
from yardkit.protocol import (
    AddSeeds,
    ExtendLease,
    FinishSeeds,
    GiveBackLease,
    GrabSeed,
    LeaseExtended,
    LeaseGivenBack,
    LeaseSeeds,
    LookUpSeed,
    ManageSeeds,
    ResourceCall,
    Seed,
    SeedAnswer,
    SeedCall,
    SeedFinish,
    SeedFinished,
    SeedGrabbed,
    SeedLookedUp,
    SeedsAdded,
    SeedsFinished,
    SeedsLeased,
    SeedsManaged,
    SeedsRefused,
    decode,
    encode,
)
from yardkit.protocol.seeds import MAX_SEEDS
from yardkit.stop import Stop

# Limit of a message with several seeds, in bytes.
MAX_CALL_BYTES: Final = 8 * 1024 * 1024
_ASK_AGAIN_SECONDS: Final = 0.5
# Bytes of a seed besides its text.
_SEED_BYTES: Final = 32
_INTEGER: Final = 2**63
# Errors of msgspec for values that it cannot encode.
_NOT_ENCODABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
_T = TypeVar("_T")

logger = logging.getLogger(__name__)


class SeedServiceAway(Exception):
    """No reply in time: the outcome is unknown, and the same call may be repeated."""


class CallRefused(Exception):
    """The service refused the call. ``code``: see ``SeedsRefused``."""

    def __init__(self, code: str, text: str, retry_seconds: float = 0.0) -> None:
        super().__init__(text)
        self.code = code
        self.retry_seconds = retry_seconds


class SeedServiceClient:
    """Base of clients of the seed service. Thread-safe; each call waits for its reply.

    Calls without a reply, and temporarily refused ones, are repeated for up to ``patience``
    seconds.

    Args:
        owner: holder of leases, such as ``run:7:3f2a``.
        timeout: seconds to wait for one reply.
        stop: ends repetition when a stop is requested.
    """

    def __init__(
        self,
        broker: Broker,
        token: str,
        *,
        owner: str,
        timeout: float,
        patience: float,
        stop: Stop | None,
    ) -> None:
        self._broker = broker
        self._token = token
        self._timeout = timeout
        self._patience = patience
        self._stop = stop
        self.owner = owner
        broker.declare(topology.SEEDS)

    def _ask(
        self, call: SeedCall | ResourceCall, kind: type[_T], timeout: float | None = None
    ) -> _T:
        timeout = self._timeout if timeout is None else timeout
        began = time.monotonic()
        patient_until = began + self._patience
        give_up = max(patient_until, began + timeout)
        while True:
            try:
                return self._ask_once(call, kind, timeout)
            except CallRefused as refusal:
                pause = refusal.retry_seconds
                # The service has answered: repeat only within the caller's patience.
                if not pause or time.monotonic() + pause > patient_until:
                    raise
            except (TimeoutError, BrokerUnavailable) as error:
                pause = _ASK_AGAIN_SECONDS
                if time.monotonic() + pause > give_up:
                    raise SeedServiceAway(f"the seed service does not answer: {error}") from error
            if self._pause(pause):
                raise SeedServiceAway("stopped before the seed service had answered")
            if isinstance(call, LeaseSeeds):
                # Its store may have given the lease before it failed.
                call = msgspec.structs.replace(call, again=True)

    def _pause(self, seconds: float) -> bool:
        """Wait; return whether to stop instead of repeating."""
        if self._stop is not None:
            return self._stop.wait(seconds)
        time.sleep(seconds)
        return False

    def _ask_once(self, call: SeedCall | ResourceCall, kind: type[_T], timeout: float) -> _T:
        question = Outgoing(encode(call), key=topology.SEEDS.name, persistent=False)
        answer = decode(self._broker.request(question, timeout).body)
        if isinstance(answer, SeedsRefused):
            raise CallRefused(answer.code, answer.text, answer.retry_seconds)
        if not isinstance(answer, kind):
            raise CallRefused("bad_answer", f"{type(answer).__name__} is no answer to this call")
        return answer


class SeedClient(SeedServiceClient):
    """Calls about one frontier; repeating ``add`` or ``finish`` changes nothing.

    Args:
        owner: required for ``lease`` and for calls about leases.
        token: ``sign_scope(secret, frontier_scope(frontier))``; for ``manage`` that of its scope.
    """

    def __init__(
        self,
        broker: Broker,
        frontier: int,
        token: str,
        *,
        owner: str = "",
        timeout: float = 10.0,
        patience: float = 30.0,
        stop: Stop | None = None,
    ) -> None:
        super().__init__(broker, token, owner=owner, timeout=timeout, patience=patience, stop=stop)
        # Names of calls that may have leased seeds although their replies were lost.
        self._unanswered: list[str] = []
        self.frontier = frontier

    def add(self, seeds: Iterable[Seed]) -> list[SeedAnswer]:
        """Add seeds; return one answer for each, in order, also for those that no message can
        carry.

        Raises:
            SeedServiceAway: earlier batches may have been added.
            CallRefused
        """
        answers: list[SeedAnswer] = []
        for batch in batches(seeds):
            unfit = [unfit_seed(seed) for seed in batch]
            fit = [seed for seed, answer in zip(batch, unfit, strict=True) if answer is None]
            answers_sent = self._ask(self._add_call(fit), SeedsAdded).answers if fit else []
            answers += _in_order(unfit, answers_sent)
        return answers

    def lease(self, limit: int, *, seconds: float = 0.0, wait_seconds: float = 0.0) -> SeedsLeased:
        """Lease up to ``limit`` seeds; empty when none became due in ``wait_seconds`` (at most 30).

        After a call without a reply, or a refusal, it first returns what that call may have leased,
        so that no lease is lost. Raises as ``add``.
        """
        try:
            name, again = self._unanswered.pop(), True
        except IndexError:
            name, again = uuid.uuid4().hex, False
        call = LeaseSeeds(
            frontier=self.frontier,
            token=self._token,
            owner=self.owner,
            limit=limit,
            seconds=seconds,
            wait_seconds=wait_seconds,
            call=name,
            again=again,
        )
        try:
            return self._ask(call, SeedsLeased, self._timeout + wait_seconds)
        except (SeedServiceAway, CallRefused):
            # The store may have given the lease before the service failed.
            self._unanswered.append(name)
            raise

    def finish(self, finishes: Sequence[SeedFinish], found: Iterable[Seed] = ()) -> SeedsFinished:
        """End leased seeds, then add ``found`` seeds. Raises as ``add``.

        Both travel in one call, so that a process killed after it loses no found seed; found seeds
        that exceed one call are added before it. A result too large for a message is stored as
        None.
        """
        if not finishes:
            return SeedsFinished(answers=[], added=self.add(found))
        *ahead, last = list(batches(found)) or [[]]
        added = [answer for batch in ahead for answer in self.add(batch)]
        unfit = [unfit_seed(seed) for seed in last]
        fit = [seed for seed, answer in zip(last, unfit, strict=True) if answer is None]
        ended: list[SeedFinished] = []
        answers: list[SeedAnswer] = []
        slices = range(0, len(finishes), MAX_SEEDS)
        for start in slices:
            call = FinishSeeds(
                frontier=self.frontier,
                token=self._token,
                owner=self.owner,
                finishes=[_sendable(outcome) for outcome in finishes[start : start + MAX_SEEDS]],
                found=fit if start == slices[-1] else [],
            )
            reply = self._ask(call, SeedsFinished)
            ended += reply.answers
            answers += reply.added
        added += _in_order(unfit, answers)
        return SeedsFinished(answers=ended, added=added)

    def extend(self, generation: int, *, seconds: float = 0.0) -> int:
        """Extend a lease; return the new deadline in Unix milliseconds.

        Raises as ``add``; ``CallRefused`` with ``wrong_lease`` when the lease has ended.
        """
        call = ExtendLease(
            frontier=self.frontier,
            token=self._token,
            owner=self.owner,
            generation=generation,
            seconds=seconds,
        )
        return self._ask(call, LeaseExtended).deadline

    def give_back(self, generation: int) -> int:
        """End a lease; return how many of its seeds are pending again.

        Raises as ``add``; ``CallRefused`` with ``wrong_lease`` when the lease has ended.
        """
        call = GiveBackLease(
            frontier=self.frontier, token=self._token, owner=self.owner, generation=generation
        )
        return self._ask(call, LeaseGivenBack).count

    def look_up(self, seed: Seed) -> SeedLookedUp:
        """Ask whether a seed would be new.

        Raises as ``add``; ``CallRefused`` with the code of an invalid seed.
        """
        _check_fit(seed)
        call = LookUpSeed(frontier=self.frontier, token=self._token, seed=seed)
        return self._ask(call, SeedLookedUp)

    def grab(self, seed: Seed, *, timeout: float, again: bool = False) -> SeedGrabbed | None:
        """Crawl a seed first; return its outcome, or None after ``timeout`` seconds.

        Raises ``CallRefused``.
        """
        _check_fit(seed)
        call = GrabSeed(frontier=self.frontier, token=self._token, seed=seed, again=again)
        try:
            return self._ask_once(call, SeedGrabbed, timeout)
        except (TimeoutError, BrokerUnavailable):
            return None

    def manage(self, operation: msgspec.Raw, *, timeout: float | None = None) -> msgspec.Raw:
        """Execute a management operation; needs a manager's token. Raises as ``add``."""
        call = ManageSeeds(frontier=self.frontier, token=self._token, operation=operation)
        return self._ask(call, SeedsManaged, timeout).result

    def _add_call(self, seeds: list[Seed]) -> AddSeeds:
        return AddSeeds(frontier=self.frontier, token=self._token, seeds=seeds)


def batches(seeds: Iterable[Seed]) -> Iterator[list[Seed]]:
    """Split ``seeds`` into lists that fit into one call each, in order."""
    batch: list[Seed] = []
    size = 0
    for seed in seeds:
        takes = seed_bytes(seed)
        if batch and (len(batch) == MAX_SEEDS or size + takes > MAX_CALL_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(seed)
        size += takes
    if batch:
        yield batch


def seed_bytes(seed: Seed) -> int:
    """Estimate the size of a seed in a message; small for a seed that no message can carry."""
    # UTF-8 takes at most four bytes for a character.
    text = 4 * len(seed.data) if isinstance(seed.data, str) else 0
    if not seed.ext:
        return _SEED_BYTES + text
    try:
        return _SEED_BYTES + text + len(msgspec.msgpack.encode(seed.ext))
    except _NOT_ENCODABLE:
        return _SEED_BYTES


def unfit_seed(seed: Seed) -> SeedAnswer | None:
    """Return the refusal of a seed that no message can carry, None for any other seed.

    Such a seed contains lone surrogates, bytes, or values without a form in JSON. All other
    validation is the service's.
    """
    data = seed.data
    if not isinstance(data, str):
        return SeedAnswer("binary_data", text=f"the data is {type(data).__name__}, not text")
    # Fast path: ASCII text without ``ext``.
    plain = seed.ext is None and seed.active_at is None and seed.max_retry is None
    if plain and data.isascii() and seed.urgent is False:
        return None
    try:
        data.encode()
    except UnicodeEncodeError as error:
        text = f"the data has half a character at position {error.start + 1}"
        return SeedAnswer("binary_data", text=text)
    for code, number in (("bad_time", seed.active_at), ("bad_retry", seed.max_retry)):
        if number is not None and not (type(number) is int and -_INTEGER <= number < _INTEGER):
            return SeedAnswer(code, text=f"a {type(number).__name__} out of place")
    if type(seed.urgent) is not bool:
        return SeedAnswer("bad_time", text="urgent is true or false")
    if seed.ext is not None:
        try:
            msgspec.msgpack.decode(msgspec.msgpack.encode(seed.ext), type=dict[str, Any])
        except (*_NOT_ENCODABLE, msgspec.DecodeError) as error:
            return SeedAnswer("bad_ext", text=f"ext: {type(error).__name__}")
    return None


def _in_order(unfit: Sequence[SeedAnswer | None], told: Iterable[SeedAnswer]) -> list[SeedAnswer]:
    """Merge the service's answers with those of seeds that could not be sent."""
    rest = iter(told)
    return [next(rest) if answer is None else answer for answer in unfit]


def _check_fit(seed: Seed) -> None:
    answer = unfit_seed(seed)
    if answer is not None:
        raise CallRefused(answer.code, answer.text)


def _sendable(finish: SeedFinish) -> SeedFinish:
    if finish.result is None:
        return finish
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(finish.result))
    except (*_NOT_ENCODABLE, msgspec.DecodeError) as error:
        logger.warning("the result of %r cannot be sent: %s", finish.key, error)
        return msgspec.structs.replace(finish, result=None)
    return finish
