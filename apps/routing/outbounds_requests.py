"""``requests.RequestStoreOutbound``: an item becomes a stored request of a biz of its project.

Delivered means that the request is stored, from where it gets into its queue and ends in exactly
one way. Who downloads it, and when, is the biz's affair, so no result is waited for unless the rule
says so (see docs/outbounds.md).
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
# A message that is offered again is the same request; of more than these nobody remembers the id.
_MOST_IDS: Final = 20_000
# Of a request whose item is real-time, in queues that know priorities.
_RT_PRIORITY: Final = 9
_KEY: Final = name_of("a key of the message", 800)


def _check_texts(texts: Mapping[Any, Any]) -> str:
    if not all(isinstance(each, str) for pair in texts.items() for each in pair):
        return "names and values are texts"
    return ""


def _check_keys(keys: Sequence[Any]) -> str:
    if not all(isinstance(key, str) and key for key in keys):
        return "the keys of the message are texts"
    return ""


class RequestStoreOutbound:
    """See ``engine.outbounds.base.Outbound``; needs ``Settings.project``."""

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "biz": Parameter(str, required=True, check=name_of("the name of a biz", 32)),
        # Keys of the message, but for ``rule``, ``method`` and ``headers``.
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
        """Raises ``ValueError`` for parameters that ``registry.check`` refuses."""
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
        """See ``Outbound``."""
        if self._is_closed:
            return [CLOSED] * len(batch)
        work = Batch(batch)
        if not self._project:
            text = "this process does not say whose bizzes are meant"
            return work.finish(away("no_project", text))
        # Not at the top: this module is loaded when Django starts.
        from apps.requeststore.services.store import shared_request_store

        try:
            yard = shared_request_store()
            bound = yard.biz(self._project, self._biz)
        except UnknownBiz:
            return work.finish(refused("unknown_biz", f"the project has no biz {self._biz}"))
        except RequestStoreUnavailable as error:
            return work.finish(away(error.code, str(error)))
        ready = list(self._entities(work, bound))
        for urgent in (True, False):
            group = [pair for pair in ready if pair[0].sent.rt is urgent]
            if group:
                outcome = self._store(yard, bound, group, urgent=urgent)
                work.settle([message for message, _ in group], outcome)
        return work.finish(DELIVERED)

    def depth(self) -> int | None:
        """Entries that wait in the queue of the biz."""
        if self._is_closed or not self._project:
            return None
        from apps.requeststore.services.store import shared_request_store

        try:
            yard = shared_request_store()
            return yard.queue(yard.biz(self._project, self._biz)).stats().waiting
        except RequestStoreError:
            return None

    def close(self) -> None:
        """See ``Outbound``; the connections are the process's."""
        self._is_closed = True

    def _store(
        self,
        yard: RequestStore,
        bound: BoundBiz,
        group: Sequence[tuple[Encoded, Entity]],
        *,
        urgent: bool,
    ) -> Outcome:
        from apps.requeststore.errors import BizDisabled, BizFull

        try:
            yard.check_room(bound, len(group))
            ids = self._ids_of(yard, [message for message, _ in group])
            # What is offered twice in one batch is stored once.
            entities = dict(zip(ids, (entity for _, entity in group), strict=True))
            yard.submit(
                bound,
                list(entities.values()),
                by=self._by,
                now=yard.now(),
                ids=list(entities),
                priority=_RT_PRIORITY if urgent else None,
            )
        except (BizDisabled, BizFull) as error:
            return away(error.code, str(error))
        except RequestStoreUnavailable as error:
            return away(error.code, str(error))
        except RequestStoreError as error:
            # It speaks of the installation and not of the item.
            return away(error.code, str(error))
        return DELIVERED

    def _ids_of(self, yard: RequestStore, messages: Sequence[Encoded]) -> list[int]:
        """The same id for a message that was offered before: it may have been stored then."""
        # A retry is another attempt, and another request.
        keys = [self._attempt(message.sent) for message in messages]
        with self._lock:
            missing = list(dict.fromkeys(key for key in keys if key not in self._ids))
            if missing:
                self._ids.update(zip(missing, yard.reserve(len(missing)), strict=True))
            found = [self._ids[key] for key in keys]
            while len(self._ids) > max(_MOST_IDS, len(keys)):
                self._ids.popitem(last=False)
        return found

    def _attempt(self, sent: Sent) -> str:
        said = self._said(sent)
        return f"{sent.task_uuid}:{said.get('group_retry_times', 0)}"

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

    def _said(self, sent: Sent) -> Mapping[str, Any]:
        said: Mapping[str, Any] = sent.message[TASK_PARAMS] if self._wrapped else sent.message
        return said

    def _entity(self, sent: Sent) -> Entity | Outcome:
        said = self._said(sent)
        url = said.get(self._data)
        if not isinstance(url, str):
            return refused("no_address", f"the message has no text under {self._data}")
        rule = said.get(self._rule_key) if self._rule_key is not None else None
        body = said.get(self._body) if self._body is not None else None
        params = {name: said[key] for name, key in self._params.items() if key in said}
        if not all(isinstance(each, str | int | float) for each in params.values()):
            return refused("bad_params", "a parameter of an address is a text or a number")
        return Entity(
            url=url,
            rule=self._rule if rule is None else str(rule),
            method=self._method,
            headers=dict(self._headers),
            params={name: str(value) for name, value in params.items()},
            body=body.encode("utf-8", "replace") if isinstance(body, str) else b"",
            meta={key: said[key] for key in self._meta if key in said},
        )
