"""Cache of the frontiers in the database, and validation of their tokens."""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from apps.runtime.errors import DATABASE_AWAY
from apps.seeds.daemon.refusals import SeedCallRefused
from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.engine.filters import FilterSettings
from apps.seeds.engine.rules import FrontierRules
from apps.seeds.models import Frontier
from yardkit.clock import Clock
from yardkit.tokens import frontier_scope, manage_scope, sign_scope

logger = logging.getLogger(__name__)

# An unknown frontier may be new: the database is read again, but not more often than this.
_ASK_SECONDS: Final = 0.1
_FIELDS: Final = (
    "id",
    "time_zone",
    "segments",
    "keys",
    "ignored_parameters",
    "max_retry",
    "lease_seconds",
    "expected_seeds",
    "false_positive_rate",
    "is_paused",
    "is_frozen",
)


@dataclass(frozen=True, slots=True)
class ActiveFrontier:
    """Frontier with its parsed rules. ``problem``: why its calls fail; ``row``: its database
    fields.
    """

    frontier: int
    rules: FrontierRules
    filter: FilterSettings | None
    lease_seconds: int
    is_paused: bool
    is_frozen: bool
    problem: str
    row: tuple[Any, ...]

    def check_usable(self) -> None:
        """Raise ``SeedCallRefused`` if the rules of the frontier cannot be loaded."""
        if self.problem:
            raise SeedCallRefused("bad_setting", self.problem)

    def check_open(self) -> None:
        """Raise ``SeedCallRefused`` while the frontier is frozen."""
        self.check_usable()
        if self.is_frozen:
            raise SeedCallRefused("frozen", "the seeds of this frontier are being moved")


class Frontiers:
    """Cache of frontiers. Thread-safe. Hold ``lock`` while working with an ``ActiveFrontier``, so
    that it is not replaced meanwhile.

    Args:
        on_change: called with each new or changed frontier, under the lock.
    """

    def __init__(
        self, *, secret: str, clock: Clock, on_change: Callable[[ActiveFrontier], None]
    ) -> None:
        self._secret = secret
        self._clock = clock
        self._on_change = on_change
        self._looks = count(1)
        self._latest = 0
        self._active: dict[int, ActiveFrontier] = {}
        self._tokens: dict[str, bytes] = {}
        self._asked_at = 0.0
        self.lock = threading.RLock()

    def look(self) -> None:
        """Reload the frontiers from the database.

        Raises:
            DatabaseError
        """
        number = next(self._looks)
        # Not under the lock, because the database may be slow.
        rows = list(Frontier.objects.order_by("pk").values_list(*_FIELDS))
        with self.lock:
            if number < self._latest:
                # Another thread started later and finished first.
                return
            self._latest = number
            before, self._active = self._active, {}
            for row in rows:
                known = before.get(row[0])
                self._active[row[0]] = known if known and known.row == row else _ground(row)
            for frontier, active in self._active.items():
                if active is not before.get(frontier):
                    self._on_change(active)

    def all(self) -> list[ActiveFrontier]:
        """Return all cached frontiers."""
        return list(self._active.values())

    def of(self, frontier: int, token: str) -> ActiveFrontier:
        """Return the frontier of a spider's or a rule's call. Raises ``SeedCallRefused``."""
        return self._of(frontier, frontier_scope(frontier), token)

    def managed(self, frontier: int, token: str) -> ActiveFrontier:
        """Return the frontier of a management call. Raises ``SeedCallRefused``."""
        return self._of(frontier, manage_scope(frontier), token)

    def _of(self, frontier: int, scope: str, token: str) -> ActiveFrontier:
        expected = self._tokens.get(scope) or sign_scope(self._secret, scope).encode()
        if not hmac.compare_digest(expected, token.encode("utf-8", "surrogatepass")):
            raise SeedCallRefused("wrong_token", f"the token is not that of {scope}")
        active = self._active.get(frontier) or self._ask(frontier)
        # Cached for existing frontiers only, so that guessed numbers cannot fill the memory.
        self._tokens[scope] = expected
        return active

    def _ask(self, frontier: int) -> ActiveFrontier:
        now = self._clock.monotonic()
        if now >= self._asked_at + _ASK_SECONDS:
            self._asked_at = now
            try:
                self.look()
            except DATABASE_AWAY as error:
                raise SeedCallRefused("database_away", f"the database is away: {error}") from None
        active = self._active.get(frontier)
        if active is None:
            raise SeedCallRefused("unknown_frontier", f"there is no frontier {frontier}")
        return active


def _ground(row: tuple[Any, ...]) -> ActiveFrontier:
    frontier = Frontier(**dict(zip(_FIELDS, row, strict=True)))
    problem = ""
    rules, settings = FrontierRules(), None
    try:
        rules, settings = frontier.rules(), frontier.filter_settings()
    except InvalidFrontierSetting as error:
        problem = str(error)
        logger.error("frontier %d cannot be worked by: %s", frontier.pk, problem)
    return ActiveFrontier(
        frontier=frontier.pk,
        rules=rules,
        filter=settings,
        lease_seconds=frontier.lease_seconds,
        is_paused=frontier.is_paused,
        is_frozen=frontier.is_frozen,
        problem=problem,
        row=row,
    )
