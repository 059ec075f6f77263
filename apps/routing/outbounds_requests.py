"""``requests.RequestStoreOutbound``: store an item as a request of a biz of its project.

An item counts as delivered when its request is stored; from there the request store guarantees that
it ends in exactly one final state. The router waits for no result unless the rule says so (see
docs/outbounds.md).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from apps.requeststore.engine.entity import Entity
from apps.requeststore.engine.errors import RequestStoreError, RequestStoreUnavailable, UnknownBiz
from apps.routing.engine.messages import TASK_PARAMS
from apps.routing.engine.outbounds.base import (
    CLOSED,
    DELIVERED,
    Batch,
    Encoded,
    Outcome,
    Sent,
    Settings,
    away,
    refused,
)
from apps.routing.engine.outbounds.parameters import Parameter, name_of, read
from apps.routing.engine.rules import Outbound as Rule

if TYPE_CHECKING:
    from apps.requeststore.services.store import BoundBiz, RequestStore

NAME: Final = "requests.RequestStoreOutbound"
# Size of the cache of request ids by message: a message that is sent again gets the same id.
_MOST_IDS: Final = 20_000
# Priority of requests of real-time items, for queues with priorities.
_RT_PRIORITY: Final = 9
_KEY: Final = name_of("a key of the message", 800)


def _check_texts(texts: Mapping[Any, Any]) -> str:
    if not all(isinstance(part, str) for pair in texts.items() for part in pair):
        return "names and values must be texts"
    return ""


def _check_keys(keys: Sequence[Any]) -> str:
    if not all(isinstance(key, str) and key for key in keys):
        return "the keys of the message must be texts"
    return ""


class RequestStoreOutbound:
    """Outbound that stores requests; see ``engine.outbounds.base.Outbound``.

    Needs ``Settings.project``.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "biz": Parameter(str, required=True, check=name_of("the name of a biz", 32)),
        # Keys of the message, except ``rule``, ``method`` and ``headers``, which are values.
        "data": Parameter(str, default="url", check=_KEY),
        "rule": Parameter(str, default=""),
        "rule_key": Parameter(str, check=_KEY),
        "method": Parameter(str, default="GET"),
        "headers": Parameter(dict, default={}, check=_check_texts),
        "params": Parameter(dict, default={}, check=_check_texts),
        "body": Parameter(str, check=_KEY),
        "meta": Parameter(list, default=("task_uuid",), check=_check_keys),
    }
    default_expects_result: ClassVar[bool] = False

    def __init__(self, rule: Rule, settings: Settings) -> None:
        """Raise ``ValueError`` for parameters that ``registry.check`` reports."""
        values = read(rule.init, self.parameters)
        self._by = f"outbound {rule.name}"[:200]
        self._wrapped = rule.task_params_wrapped
        self._biz: str = values["biz"]
        self._data: str = values["data"]
        self._rule: str = values["rule"]
        self._rule_key: str | None = values["rule_key"]
        self._method: str = values["method"]
        self._headers: Mapping[str, str] = values["headers"]
        self._params: Mapping[str, str] = values["params"]
        self._body: str | None = values["body"]
        self._meta: Sequence[str] = values["meta"]
        self._project = settings.project
        self._is_closed = False
        self._ids = OrderedDict[str, int]()
        self._lock = threading.Lock()

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        if self._is_closed:
            return [CLOSED] * len(batch)
        work = Batch(batch)
        if not self._project:
            text = "outbound built without a project: its biz cannot be looked up"
            return work.finish(away("no_project", text))
        # Imported here: every process loads this module at start, and few send to this outbound.
        from apps.requeststore.services.store import shared_request_store

        try:
            store = shared_request_store()
            bound = store.biz(self._project, self._biz)
        except UnknownBiz:
            return work.finish(
                refused(
                    "unknown_biz",
                    f"the project has no biz {self._biz}; create it or change the parameter biz",
                )
            )
        except RequestStoreUnavailable as error:
            return work.finish(away(error.code, str(error)))
        ready = list(self._entities(work, bound))
        for urgent in (True, False):
            group = [pair for pair in ready if pair[0].sent.rt is urgent]
            if group:
                outcome = self._store(store, bound, group, urgent=urgent)
                work.settle([message for message, _ in group], outcome)
        return work.finish(DELIVERED)

    def depth(self) -> int | None:
        """Return the number of requests that wait in the queue of the biz."""
        if self._is_closed or not self._project:
            return None
        from apps.requeststore.services.store import shared_request_store

        try:
            store = shared_request_store()
            return store.queue(store.biz(self._project, self._biz)).stats().waiting
        except RequestStoreError:
            return None

    def close(self) -> None:
        """Refuse further batches; the connections belong to the process and stay open."""
        self._is_closed = True

    def _store(
        self,
        store: RequestStore,
        bound: BoundBiz,
        group: Sequence[tuple[Encoded, Entity]],
        *,
        urgent: bool,
    ) -> Outcome:
        from apps.requeststore.errors import BizDisabled, BizFull

        try:
            store.check_room(bound, len(group))
            ids = self._ids_of(store, [message for message, _ in group])
            # A message that occurs twice in a batch is stored once.
            entities = dict(zip(ids, (entity for _, entity in group), strict=True))
            store.submit(
                bound,
                list(entities.values()),
                by=self._by,
                now=store.now(),
                ids=list(entities),
                priority=_RT_PRIORITY if urgent else None,
            )
        except (BizDisabled, BizFull) as error:
            return away(error.code, str(error))
        except RequestStoreUnavailable as error:
            return away(error.code, str(error))
        except RequestStoreError as error:
            # The error concerns the installation, not the item: park it.
            return away(error.code, str(error))
        return DELIVERED

    def _ids_of(self, store: RequestStore, messages: Sequence[Encoded]) -> list[int]:
        """Return an id per message, the same as before if it was sent before.

        An earlier call may have stored the request and then failed; the same id keeps it from being
        stored twice. A retry by the router is a new attempt, and gets a new request.
        """
        keys = [self._attempt(message.sent) for message in messages]
        with self._lock:
            missing = list(dict.fromkeys(key for key in keys if key not in self._ids))
            if missing:
                self._ids.update(zip(missing, store.reserve(len(missing)), strict=True))
            ids = [self._ids[key] for key in keys]
            while len(self._ids) > max(_MOST_IDS, len(keys)):
                self._ids.popitem(last=False)
        return ids

    def _attempt(self, sent: Sent) -> str:
        payload = self._payload(sent)
        return f"{sent.task_uuid}:{payload.get('group_retry_times', 0)}"

    # --- from messages to requests ----------------------------------------------------------------

    def _entities(self, work: Batch, bound: BoundBiz) -> Iterator[tuple[Encoded, Entity]]:
        from apps.requeststore.services.submission import checked_entity

        for message in work.ready:
            entity = self._entity(message.sent)
            if not isinstance(entity, Outcome) and (why := checked_entity(bound, entity)):
                entity = refused("bad_request", why)
            if isinstance(entity, Outcome):
                work.settle([message], entity)
            else:
                yield message, entity

    def _payload(self, sent: Sent) -> Mapping[str, Any]:
        payload: Mapping[str, Any] = sent.message[TASK_PARAMS] if self._wrapped else sent.message
        return payload

    def _entity(self, sent: Sent) -> Entity | Outcome:
        payload = self._payload(sent)
        url = payload.get(self._data)
        if not isinstance(url, str):
            return refused("no_address", f"the message has no text under the key {self._data}")
        rule = payload.get(self._rule_key) if self._rule_key is not None else None
        body = payload.get(self._body) if self._body is not None else None
        params = {name: payload[key] for name, key in self._params.items() if key in payload}
        if not all(isinstance(value, str | int | float) for value in params.values()):
            return refused("bad_params", "URL parameters must be texts or numbers")
        return Entity(
            url=url,
            rule=self._rule if rule is None else str(rule),
            method=self._method,
            headers=dict(self._headers),
            params={name: str(value) for name, value in params.items()},
            body=body.encode("utf-8", "replace") if isinstance(body, str) else b"",
            meta={key: payload[key] for key in self._meta if key in payload},
        )
