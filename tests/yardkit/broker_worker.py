"""The other process of the broker tests: ``python broker_worker.py COMMAND URL ARGUMENT...``.

Says "ready" on its first line, then whatever the command has to say.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "platform"))

from yardkit.broker import Outgoing, QueueSpec, connect

PATIENCE_SECONDS = 60.0


def say(*words: object) -> None:
    print(*words, flush=True)


def hold(url: str, queue: str, prefetch: str) -> None:
    """Take what comes, acknowledge nothing, and say how much it was."""
    broker = connect(url, name="holder", timeout=PATIENCE_SECONDS)
    subscription = broker.subscribe(queue, prefetch=int(prefetch))
    say("ready")
    while True:
        deliveries = subscription.take(100, PATIENCE_SECONDS)
        say(len(deliveries))


def echo(url: str, queue: str) -> None:
    """Answer every message with its body turned round; "stop" ends it."""
    broker = connect(url, name="echo", timeout=PATIENCE_SECONDS)
    subscription = broker.subscribe(queue)
    say("ready")
    while True:
        for delivery in subscription.take(100, PATIENCE_SECONDS):
            if delivery.body == b"stop":
                subscription.ack([delivery])
                broker.close()
                say("stopped")
                return
            broker.reply(delivery, delivery.body[::-1]).result(PATIENCE_SECONDS)
            subscription.ack([delivery])


def publish(url: str, queue: str, messages: str, per_call: str) -> None:
    """Publish numbered messages and wait for the last confirm."""
    broker = connect(url, name="publisher", timeout=PATIENCE_SECONDS)
    say("ready")
    numbers = [str(number).encode() for number in range(int(messages))]
    step = int(per_call)
    confirms = [
        broker.publish([Outgoing(body, queue) for body in numbers[start : start + step]])
        for start in range(0, len(numbers), step)
    ]
    for confirm in confirms:
        confirm.result(PATIENCE_SECONDS)
    broker.close()
    say("published")


def declare(url: str, queue: str) -> None:
    """Open, declare, publish one message, close: what several processes do at once."""
    broker = connect(url, name="starter", timeout=PATIENCE_SECONDS)
    broker.declare(QueueSpec(queue))
    broker.publish([Outgoing(b"here", queue)]).result(PATIENCE_SECONDS)
    broker.close()
    say("ready")


def idle(url: str, queue: str, seconds: str) -> None:
    """Say how much processor time a second of doing nothing costs."""
    broker = connect(url, name="idler", timeout=PATIENCE_SECONDS)
    broker.subscribe(queue)
    say("ready")
    began, used = time.monotonic(), time.process_time()
    signal.sigtimedwait([], float(seconds))
    say((time.process_time() - used) / (time.monotonic() - began))
    broker.close()


COMMANDS = {"hold": hold, "echo": echo, "publish": publish, "declare": declare, "idle": idle}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
