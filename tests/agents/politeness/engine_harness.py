"""An engine, a store of shares and a clock of the test's own."""

from __future__ import annotations

from collections import Counter

from apps.agents.center.politeness.engine import Actions, PolitenessEngine, PoliteRun
from apps.agents.center.politeness.host import HeldRequest
from apps.agents.center.politeness.limits import Defaults, HostRuleLimits, HostRules
from apps.agents.center.politeness.shares import HostShares, MemoryShares
from yardkit.clock import ManualClock
from yardkit.protocol import (
    DownloadRequest,
    DownloadResult,
    FailureKind,
    HostResult,
    RequestItem,
    encode_request,
)

HOST = "example.com"


def items(
    count: int, host: str = HOST, start: int = 1, path: str = "", *, ignore_robots: bool = False
) -> list[RequestItem]:
    """Requests 1 … ``count`` for pages of ``host``."""
    return [
        RequestItem(
            number,
            1,
            host,
            "",
            encode_request(
                DownloadRequest(url=f"http://{host}/{path}{number}", ignore_robots=ignore_robots)
            ),
        )
        for number in range(start, start + count)
    ]


def view(run: int = 1, *, obey: bool = False, reply_to: str = "") -> PoliteRun:
    return PoliteRun(
        run=run,
        reply_to=reply_to or f"run.{run}",
        obey_robots=obey,
        user_agent="Crawlyard",
        timeout_seconds=15.0,
    )


class EngineHarness:
    """One center's engine; the store answers at once unless it is ``away``."""

    def __init__(
        self,
        defaults: Defaults | None = None,
        *rules: HostRuleLimits,
        clock: ManualClock | None = None,
        shares: HostShares | None = None,
        center: str = "c1",
    ) -> None:
        self.clock = clock or ManualClock()
        self.shares = shares or MemoryShares(self.clock.time)
        self.center = center
        self.defaults = defaults or Defaults()
        self.engine = PolitenessEngine(HostRules.of(self.defaults, rules))
        self.gone: list[tuple[float, HeldRequest]] = []
        self.all = Actions()
        self.asks = 0
        self.away = False

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def offer(self, count: int, run: int = 1, *, host: str = HOST, obey: bool = False) -> None:
        self.engine.offer(view(run, obey=obey), items(count, host), self.now)

    def step(self) -> Actions:
        """Step until the store has nothing more to grant at this moment."""
        total = Actions()
        for _ in range(20):
            actions = self.engine.step(self.now)
            total.go += actions.go
            total.fetches += actions.fetches
            for name in ("held", "refused", "skipped"):
                for key, some in getattr(actions, name).items():
                    getattr(total, name).setdefault(key, []).extend(some)
                    getattr(self.all, name).setdefault(key, []).extend(some)
            if not actions.asks or self.away:
                break
            self.asks += len(actions.asks)
            self.engine.granted(self.shares.exchange(self.center, actions.asks), self.now)
        self.gone += [(self.now, one) for one in total.go]
        return total

    def run(self, seconds: float, tick: float = 0.01) -> None:
        """Time passes in small steps; what goes out is in ``gone``."""
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.step()
            self.clock.advance(tick)
        self.step()

    def finish(self, count: int, run: int = 1, *, busy: int = 0, after: float = 0.0) -> None:
        self.engine.finished(run, [HostResult(HOST, count, busy, after)], self.now)

    def robots(self, text: str = "", status: int = 200, **fields: object) -> None:
        """Answer the one robots.txt that was asked for."""
        (fetch,) = self.step().fetches
        self.answer(fetch.number, text, status, **fields)

    def answer(self, number: int, text: str = "", status: int = 200, **fields: object) -> None:
        result = DownloadResult(
            -number,
            1,
            f"http://{HOST}/robots.txt",
            status,
            headers=fields.get("headers", []),  # type: ignore[arg-type]
            body=text.encode(),
            failure=fields.get("failure", FailureKind.NONE),  # type: ignore[arg-type]
            error=str(fields.get("error", "")),
        )
        self.engine.fetched(result, self.now)

    def by_run(self) -> Counter[int]:
        return Counter(one.run for _at, one in self.gone)


def count(words: dict[tuple[int, str, str], list[RequestItem]]) -> int:
    return sum(map(len, words.values()))


def reasons(words: dict[tuple[int, str, str], list[RequestItem]]) -> list[str]:
    return [reason for _run, _reply_to, reason in words]
