"""What goes wrong, on demand."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from tests.joblogs.elastic_double.answers import Document, error_body


@dataclass
class _Fault:
    where: str
    times: int
    passes: int = 0
    status: int = 0
    kind: str = ""
    reason: str = ""


@dataclass
class Faults:
    """Each happens so many times, to requests or documents whose address holds ``where``."""

    _answers: list[_Fault] = field(default_factory=list)
    _items: list[_Fault] = field(default_factory=list)
    _cuts: list[_Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refuse(
        self,
        where: str,
        status: int,
        kind: str,
        reason: str = "",
        *,
        times: int = 1,
        after: int = 0,
    ) -> None:
        """Answer a request with an error, and do nothing; so many later."""
        self._answers.append(_Fault(where, times, after, status, kind, reason))

    def refuse_item(
        self, where: str, status: int, kind: str, reason: str = "", times: int = 1
    ) -> None:
        """The same for one operation of a bulk request; ``where`` is in index/id."""
        self._items.append(_Fault(where, times, 0, status, kind, reason))

    def cut(self, where: str, *, after: int = 0) -> None:
        """Do what is asked, and break the connection in place of an answer, so many later."""
        self._cuts.append(_Fault(where, 1, passes=after))

    def refused(self, target: str) -> tuple[int, Document] | None:
        """How to answer this request, if not as usual."""
        fault = self._take(self._answers, target)
        if fault is None:
            return None
        return fault.status, error_body(fault.status, fault.kind, fault.reason)

    def refused_item(self, index: str, identity: str) -> Document | None:
        """What becomes of this operation, if not the usual."""
        fault = self._take(self._items, f"{index}/{identity}")
        return None if fault is None else error_body(fault.status, fault.kind, fault.reason)

    def is_cut(self, target: str) -> bool:
        """Whether this answer does not arrive."""
        return self._take(self._cuts, target) is not None

    def _take(self, faults: list[_Fault], text: str) -> _Fault | None:
        with self._lock:
            for fault in faults:
                if not fault.times or fault.where not in text:
                    continue
                if fault.passes:
                    fault.passes -= 1
                    continue
                fault.times -= 1
                return fault
        return None
