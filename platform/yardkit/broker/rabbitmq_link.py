"""A RabbitMQ connection that reconnects by itself."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable

import pika
from pika.exceptions import (
    AMQPConnectionError,
    ConnectionClosed,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from yardkit.backoff import Backoff
from yardkit.broker.rabbitmq_connection import Connection
from yardkit.broker.rabbitmq_loop import Loop
from yardkit.broker.rabbitmq_url import RabbitAddress

logger = logging.getLogger(__name__)
# pika reports each failed attempt as an error with a traceback; our one line says it all.
logging.getLogger("pika").setLevel(logging.CRITICAL)

HEARTBEAT_SECONDS = 30
_CONNECT_SECONDS = 10.0


class Link:
    """Connect, notify the owner, and reconnect with back-off until closed.

    Used in the loop's thread; only ``is_up`` may be read elsewhere.
    """

    def __init__(
        self,
        loop: Loop,
        address: RabbitAddress,
        name: str,
        *,
        on_up: Callable[[Connection], None],
        on_down: Callable[[str], None],
        on_refused: Callable[[str, bool], None] | None = None,
        loss_level: int = logging.WARNING,
    ) -> None:
        """``on_refused(why, for_good)``: an attempt failed, and whether retrying is useless.

        ``loss_level``: log level of a lost connection; of two links to one broker one is enough.
        """
        self._loop = loop
        self._address = address
        self._name = name
        self._on_up = on_up
        self._on_down = on_down
        self._on_refused = on_refused
        self._loss_level = loss_level
        self._backoff = Backoff()
        self._connection: Connection | None = None
        self._was_up = False
        self._warned = False
        self._on_closed: Callable[[], None] | None = None
        self.is_up = False

    def connect(self) -> None:
        """Start connecting; the callbacks report the result."""
        if self._on_closed is not None:
            return
        self._connection = Connection(
            self._parameters(),
            on_open_callback=self._opened,
            on_open_error_callback=self._refused,
            on_close_callback=self._closed,
            custom_ioloop=self._loop.ioloop,
        )

    def close(self, done: Callable[[], None]) -> None:
        """Flush, close permanently, and call ``done``."""
        self._on_closed = done
        connection = self._connection
        if connection is None or connection.is_closed:
            self._loop.soon(done)
        elif not connection.is_closing:
            connection.close()

    def abort(self) -> None:
        """Drop a hanging or broken connection at once; the callbacks follow."""
        connection = self._connection
        if connection is not None and not connection.is_closed:
            # pika offers no public way to close a socket without asking the other side first.
            connection._terminate_stream(AMQPConnectionError("given up"))

    def _parameters(self) -> pika.ConnectionParameters:
        address = self._address
        options = None
        if address.scheme == "amqps":
            options = pika.SSLOptions(ssl.create_default_context(), address.host)
        return pika.ConnectionParameters(
            host=address.host,
            port=address.port,
            virtual_host=address.vhost,
            credentials=pika.PlainCredentials(address.user, address.password),
            heartbeat=HEARTBEAT_SECONDS,
            connection_attempts=1,
            socket_timeout=_CONNECT_SECONDS,
            stack_timeout=_CONNECT_SECONDS,
            client_properties={"connection_name": self._name},
            ssl_options=options,
        )

    def _opened(self, connection: Connection) -> None:
        if connection is not self._connection:
            connection.close()
            return
        if self._was_up:
            logger.info("broker %s: connected again to %s", self._name, self._address.url)
        self._was_up = self.is_up = True
        self._warned = False
        self._backoff.reset()
        self._on_up(connection)

    def _refused(self, connection: Connection, error: BaseException) -> None:
        if connection is not self._connection:
            return
        for_good = isinstance(error, ProbableAuthenticationError | ProbableAccessDeniedError)
        why = explain(self._address, error)
        if self._was_up and not self._warned:
            self._warned = True
            logger.log(self._loss_level, "broker %s: %s; trying again", self._name, why)
        if self._on_refused is not None:
            self._on_refused(why, for_good)
        self._try_again()

    def _closed(self, connection: Connection, reason: BaseException) -> None:
        if connection is not self._connection:
            return
        if self._on_closed is None:
            text = "broker %s: lost %s: %s"
            logger.log(self._loss_level, text, self._name, self._address.url, _text(reason))
        self._down(_text(reason))

    def _down(self, why: str) -> None:
        self.is_up = False
        self._on_down(why)
        self._try_again()

    def _try_again(self) -> None:
        self._connection = None
        if self._on_closed is not None:
            self._loop.soon(self._on_closed)
        else:
            self._loop.later(self._backoff.seconds(), self.connect)


def explain(address: RabbitAddress, error: BaseException) -> str:
    """Return one line with the error and the address, without the password."""
    where = f"{address.host}:{address.port}"
    if isinstance(error, ProbableAuthenticationError):
        return f"RabbitMQ at {where} refused the user {address.user!r} or the password"
    if isinstance(error, ProbableAccessDeniedError):
        return (
            f"RabbitMQ at {where} has no vhost {address.vhost!r},"
            f" or the user {address.user!r} may not use it"
        )
    cause = _innermost(error)
    if isinstance(cause, OSError):
        return f"no RabbitMQ at {where}: {cause.strerror or cause}"
    if "PROTOCOL" in str(cause) or "protocol" in str(cause):
        return f"what listens at {where} is not RabbitMQ"
    return f"no RabbitMQ at {where}: {cause}"


def _text(error: BaseException) -> str:
    """Return why an established connection ended."""
    cause = _innermost(error)
    return cause.reply_text if isinstance(cause, ConnectionClosed) else str(cause)


def _innermost(error: BaseException) -> BaseException:
    """Unwrap the relevant error, which pika wraps up to three times."""
    while True:
        inner = getattr(error, "exception", None)
        attempts = getattr(error, "exceptions", None)
        if attempts:
            inner = attempts[-1]
        elif isinstance(error, AMQPConnectionError) and error.args:
            inner = error.args[0]
        if not isinstance(inner, BaseException):
            return error
        error = inner
