"""Commands to a running run, and its answers."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Protocol

from yardkit.protocol import Lifecycle, LifecycleAnswer, RunAction
from yardspider.errors import BadInput
from yardspider.transports.base import RunTransport

log = logging.getLogger("yardspider")

# A pause is answered when nothing is out any more, at the latest after this time: after 10 s the
# platform shows the command as unanswered.
SETTLE_SECONDS: Final = 5.0
_REMEMBERED: Final = 1000


class RunControl(Protocol):
    """What carries out commands."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self, reason: str) -> None: ...

    def tune(self, settings: Mapping[str, Any]) -> str:
        """Apply settings; return a description of the result. Raises ``BadInput``."""

    def on_their_way(self) -> int:
        """Return the number of requests sent and not answered."""


class CommandHandler:
    """Carries out the commands to one execution of a run and answers them.

    Each is carried out once and answered at every repetition. A command that arrives after one
    with a higher number is refused.
    """

    def __init__(self, transport: RunTransport, orders: RunControl) -> None:
        self._transport = transport
        self._orders = orders
        # By command; None while a pause is pending.
        self._answers: OrderedDict[int, LifecycleAnswer | None] = OrderedDict()
        # Highest number of a command: of those that change the state (False) and of tuning (True).
        self._newest = {False: 0, True: 0}
        self._pausing: Lifecycle | None = None
        self._settle_by = 0.0

    def take(self, message: Lifecycle, now: float) -> None:
        """Carry out a command, if it is for this execution."""
        transport = self._transport
        if message.run not in (0, transport.run) or message.boot not in ("", transport.incarnation):
            return
        number = message.command
        if number and number in self._answers:
            answered = self._answers[number]
            if answered is not None:
                transport.answer_command(answered)
            return
        tunes = message.action is RunAction.TUNE
        if number and number < self._newest[tunes]:
            self._answer(message, accepted=False, reason="a later command came before it")
            return
        self._newest[tunes] = max(self._newest[tunes], number)
        if not tunes:
            self._settle_pause()
        log.info("command: %s%s", message.action, f", {message.reason}" if message.reason else "")
        self._carry_out(message, now)

    def _carry_out(self, message: Lifecycle, now: float) -> None:
        if message.action is RunAction.PAUSE:
            self._orders.pause()
            self._pausing, self._settle_by = message, now + SETTLE_SECONDS
            if message.command:
                self._remember(message.command, None)
            self.settle(now)
        elif message.action is RunAction.RESUME:
            self._orders.resume()
            self._answer(message)
        elif message.action is RunAction.TUNE:
            try:
                pace = self._orders.tune(message.settings)
            except BadInput as error:
                self._answer(message, accepted=False, reason=str(error))
            else:
                log.info("tuned: %s", pace)
                self._answer(message, reason=pace)
        else:
            self._orders.stop(f"exit message{f', {message.reason}' if message.reason else ''}")
            self._answer(message)

    def settle(self, now: float) -> float | None:
        """Answer a pause once nothing is out; return when to call again at the latest."""
        if self._pausing is None:
            return None
        if self._orders.on_their_way() and now < self._settle_by:
            return self._settle_by
        self._settle_pause()
        return None

    def finish(self) -> None:
        """Answer a pending pause: the run is at its end."""
        self._settle_pause()

    def _settle_pause(self) -> None:
        message, self._pausing = self._pausing, None
        if message is not None:
            left = self._orders.on_their_way()
            self._answer(message, reason=f"{left} requests are still on their way" if left else "")

    def _answer(self, message: Lifecycle, *, accepted: bool = True, reason: str = "") -> None:
        if not message.command:
            return
        answer = LifecycleAnswer(
            run=self._transport.run,
            boot=self._transport.incarnation,
            action=message.action,
            command=message.command,
            accepted=accepted,
            reason=reason,
        )
        self._remember(message.command, answer)
        self._transport.answer_command(answer)

    def _remember(self, command: int, answer: LifecycleAnswer | None) -> None:
        self._answers[command] = answer
        if len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
