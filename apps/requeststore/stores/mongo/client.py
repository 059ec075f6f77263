"""MongoDB client of a process, and the meaning of the driver's errors.

Write concern (majority, journaled) and primary reads are set here whatever the URL says, so that
no fail-over loses an acknowledged write.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import MongoClient, ReadPreference
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    DocumentTooLarge,
    InvalidURI,
    OperationFailure,
    PyMongoError,
)
from pymongo.monitoring import CommandListener
from pymongo.uri_parser import parse_uri
from pymongo.write_concern import WriteConcern

from apps.requeststore.engine.errors import BadSetting, RequestStoreUnavailable, TooLarge
from apps.requeststore.stores.base import Shard
from yardkit.masks import masked, without_secrets

Document = dict[str, Any]

APPLICATION: Final = "crawlyard"
SERVER_SECONDS: Final = 5.0
_MOST_TEXT: Final = 500
_WRITTEN: Final = WriteConcern("majority", j=True, wtimeout=10_000)
# Dates as whole milliseconds, including those outside the range of ``datetime``.
_CODEC: Final[CodecOptions[Document]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_MS
)
_NAMESPACE_NOT_FOUND: Final = 26


class MongoConnection:
    """Thread-safe; a forked child connects again.

    Raises:
        BadSetting: the URL is invalid; the text holds no password.
    """

    def __init__(
        self,
        url: str,
        *,
        server_seconds: float = SERVER_SECONDS,
        listeners: list[CommandListener] | None = None,
    ) -> None:
        self._url = url
        self._options = _options(url, server_seconds)
        if listeners:
            self._options["event_listeners"] = listeners
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._made: MongoClient[Document] | None = None
        self._abandoned: list[object] = []

    @property
    def address(self) -> str:
        """Return the URL without its password."""
        return masked(self._url)

    def connected(self) -> MongoClient[Document]:
        """Return the driver's client, which connects by itself. Raises ``BadSetting``."""
        if os.getpid() != self._process:
            # Neither used nor closed: the parent uses the same sockets.
            self._abandoned.append(self._made)
            self._process, self._made, self._lock = os.getpid(), None, threading.Lock()
        with self._lock:
            if self._made is None:
                try:
                    self._made = MongoClient(self._url, **self._options)
                except (ConfigurationError, ValueError) as error:
                    raise BadSetting(f"MongoDB: {self._error_text(error)}") from None
            return self._made

    def database(self, name: str) -> Database[Document]:
        """Return a database."""
        return self.connected().get_database(
            name,
            codec_options=_CODEC,
            read_preference=ReadPreference.PRIMARY,
            write_concern=_WRITTEN,
        )

    def collection(self, shard: Shard) -> Collection[Document]:
        """Return the collection of a shard."""
        return self.database(shard.database)[shard.collection]

    def close(self) -> None:
        """Close; the next call connects again."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None and os.getpid() == self._process:
            made.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert the driver's errors to those of the interface."""
        try:
            yield
        except DocumentTooLarge as error:
            raise TooLarge(
                f"a request is too large for MongoDB: {self._error_text(error)}"
            ) from None
        except PyMongoError as error:
            raise self.unavailable(error) from error

    def unavailable(self, error: Exception) -> RequestStoreUnavailable:
        """Return the error to raise for ``error``, without a password."""
        return RequestStoreUnavailable(f"MongoDB at {self.address}: {self._error_text(error)}")

    def _error_text(self, error: Exception) -> str:
        if isinstance(error, BulkWriteError):
            # The text of the error contains whole requests.
            details = error.details or {}
            errors = [*details.get("writeErrors", []), *details.get("writeConcernErrors", [])]
            text = str(errors[0].get("errmsg", "")) if errors else "a bulk write failed"
            code = errors[0].get("code") if errors else error.code
            text = f"error {code}" if "dup key" in text else f"{text} (error {code})"
        elif isinstance(error, OperationFailure):
            text = f"{_first_line(error)} (error {error.code})"
        else:
            text = _first_line(error)
        return without_secrets(text, self._url)[:_MOST_TEXT]


def is_missing(error: OperationFailure) -> bool:
    """Return whether the error says that the collection does not exist."""
    return error.code == _NAMESPACE_NOT_FOUND


def _first_line(error: Exception) -> str:
    # The rest of the text is the topology as Python objects.
    text = str(error).partition(", Timeout: ")[0].partition(", full error: ")[0]
    return text.strip().partition("\n")[0] or type(error).__name__


def _options(url: str, server_seconds: float) -> dict[str, Any]:
    """Return default options and forced options."""
    milliseconds = int(server_seconds * 1000)
    defaults: dict[str, Any] = {
        "appname": APPLICATION,
        "serverSelectionTimeoutMS": milliseconds,
        "connectTimeoutMS": milliseconds,
        # For a member that hangs without closing its connections.
        "socketTimeoutMS": max(3 * milliseconds, 1000),
        "waitQueueTimeoutMS": milliseconds,
        "maxPoolSize": 20,
    }
    try:
        # The hosts of a mongodb+srv:// URL are resolved later, by the driver.
        shown = "mongodb://" + url.partition("://")[2] if url.startswith("mongodb+srv:") else url
        given = {name.lower() for name in parse_uri(shown, warn=False)["options"]}
    except (InvalidURI, ConfigurationError, ValueError) as error:
        raise BadSetting(f"MongoDB: {without_secrets(_first_line(error), url)}") from None
    options = {name: value for name, value in defaults.items() if name.lower() not in given}
    return {**options, "connect": False, "retryWrites": True, "retryReads": True}
