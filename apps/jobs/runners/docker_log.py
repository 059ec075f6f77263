"""Output of a container as stored by the engine: the same lines in the same order each time."""

from __future__ import annotations

import contextlib
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import requests
import urllib3
from docker import APIClient
from docker.errors import APIError, DockerException
from docker.types import CancellableStream

from apps.jobs.runners.base import RunnerAway
from apps.jobs.runners.docker_engine import ENGINE_SECONDS, DockerEngine
from apps.jobs.runners.log_sources import BATCH_LINES, LINE_BYTES, LogLineRead

# Errors of a connection that is lost, or closed by ``close()``.
_BREAKS: Final = (
    DockerException,
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
    ValueError,
    RunnerAway,
)
_HEADER: Final = struct.Struct(">BxxxL")
_STDERR: Final = 2
# Limit of buffered lines; further lines stay in the engine's log file.
_AHEAD_LINES: Final = 5000
_AGAIN_SECONDS: Final = 1.0
_TAIL_LINES: Final = 20
LOST: Final = "... [lines are lost here: the engine had rotated them away before they were read]"


class DockerLog:
    """Log source that follows one container in a thread and reconnects.

    Each connection reads from the beginning and skips the lines that were read before, up to the
    timestamp of the last one. Lines are not counted, because the engine rotates away the oldest
    lines. Lines that are rotated away before they are read are lost; the line ``LOST`` takes their
    place.
    """

    def __init__(self, engine: DockerEngine, container: str) -> None:
        self._engine = engine
        self._container = container
        self._lines: deque[LogLineRead] = deque()
        self._room = threading.Condition()
        self._stop = threading.Event()
        # Timestamp of the last line read, and the number of lines read with that timestamp.
        self._mark = ("", 0)
        self._stream: CancellableStream | None = None
        self._thread = threading.Thread(
            target=self._follow, name=f"log {container[:12]}", daemon=True
        )
        self._started = False

    def resume(self, mark: str) -> None:
        """Skip the lines up to ``mark``; see ``Resumable``."""
        stamp, _slash, same = mark.partition("/")
        if same.isdecimal():
            self._mark = (stamp, int(same))

    def read(self, *, last: bool = False) -> Sequence[LogLineRead]:
        """Return at most ``BATCH_LINES`` lines."""
        if not self._started:
            # Not started earlier, since ``resume`` may set the position first.
            self._started = True
            self._thread.start()
        with self._room:
            count = min(BATCH_LINES, len(self._lines))
            lines = [self._lines.popleft() for _ in range(count)]
            self._room.notify()
        return lines

    @property
    def ended(self) -> bool:
        """Whether all lines are read; False while the engine is unreachable."""
        return self._started and not self._thread.is_alive() and not self._lines

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()
        with self._room:
            self._room.notify()
        stream = self._stream
        if stream is not None:
            with contextlib.suppress(OSError, AttributeError, DockerException):
                stream.close()

    # --- the thread -------------------------------------------------------------------------------

    def _follow(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(*_BREAKS):
                client = self._engine.connect(ENGINE_SECONDS)
                try:
                    if self._read_to_the_end(client):
                        return
                finally:
                    client.close()
            self._stop.wait(_AGAIN_SECONDS)

    def _read_to_the_end(self, client: APIClient) -> bool:
        """Read all lines; return False if there may be more."""
        try:
            self._read_all(client)
            state = client.inspect_container(self._container)["State"]
        except APIError as error:
            # The container was removed.
            return bool(error.status_code == requests.codes.not_found)
        return not (state.get("Running") or state.get("Paused"))

    def _read_all(self, client: APIClient) -> None:
        """Read from the first line; skip the lines that were read before."""
        with _open(client, self._container, follow=1, tail="all") as response:
            self._stream = CancellableStream(None, response)
            if self._stop.is_set():
                return
            for line in untaken(_lines(response), self._mark):
                if not self._take(line):
                    return

    def _take(self, line: LogLineRead) -> bool:
        """Queue a line for the reader, waiting for room; return False if the source is closed."""
        with self._room:
            while len(self._lines) >= _AHEAD_LINES and not self._stop.is_set():
                self._room.wait(_AGAIN_SECONDS)
            if self._stop.is_set():
                return False
            if line.mark:
                stamp, same = self._mark
                self._mark = (line.mark, same + 1 if line.mark == stamp else 1)
                line = replace(line, mark=f"{line.mark}/{self._mark[1]}")
            self._lines.append(line)
        return True


def untaken(lines: Iterator[LogLineRead], mark: tuple[str, int]) -> Iterator[LogLineRead]:
    """Yield the lines after ``mark``, which is a timestamp and a number of lines with it."""
    stamp, left = mark
    if stamp:
        first = next(lines, None)
        if first is not None and _seconds(first.mark.encode()) > _seconds(stamp.encode()):
            yield LogLineRead(first.at, first.source, LOST)
            yield first
            left = 0
        elif first is not None and first.mark == stamp:
            left -= 1
    for line in lines:
        if stamp and left > 0:
            left -= line.mark == stamp
            continue
        yield line


def last_line(client: APIClient, container: str) -> str:
    """Return the last line of a container that is not blank."""
    with _open(client, container, follow=0, tail=str(_TAIL_LINES)) as response:
        lines = [line.text.strip() for line in _lines(response)]
    return next((text for text in reversed(lines) if text), "")


def _open(client: APIClient, container: str, *, follow: int, tail: str) -> requests.Response:
    """Open the stream of raw frames: the SDK's reader mixes stdout and stderr."""
    response: requests.Response = client.get(
        f"{client.base_url}/v{client.api_version}/containers/{container}/logs",
        params={"stdout": 1, "stderr": 1, "timestamps": 1, "follow": follow, "tail": tail},
        stream=True,
        # No read timeout: a run may write no output for days.
        timeout=(ENGINE_SECONDS, None if follow else ENGINE_SECONDS),
    )
    if response.status_code != requests.codes.ok:
        response.close()
        raise APIError(f"status {response.status_code}", response)
    return response


def _lines(response: requests.Response) -> Iterator[LogLineRead]:
    """Yield complete lines; the engine splits long lines into pieces with separate timestamps."""
    begun: dict[int, tuple[float, bytearray]] = {}
    # Use the timestamp of the last piece, so that the marks of lines are ascending.
    mark = ""
    for stream, frame in _frames(response.raw):
        stamp, _space, text = frame.partition(b" ")
        mark = stamp.decode("ascii", "replace")
        at, so_far = begun.pop(stream, (_seconds(stamp), bytearray()))
        # One character more than the limit, so that a cut is recognised.
        so_far += text[: max(0, LINE_BYTES + 2 - len(so_far))]
        if not text.endswith(b"\n"):
            begun[stream] = (at, so_far)
            continue
        yield _line(at, stream, so_far, mark)
    for stream, (at, so_far) in sorted(begun.items()):
        yield _line(at, stream, so_far, mark)


def _line(at: float, stream: int, text: bytearray, mark: str) -> LogLineRead:
    shown = bytes(text).removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
    return LogLineRead(at, "stderr" if stream == _STDERR else "stdout", shown, mark)


def _frames(raw: Any) -> Iterator[tuple[int, bytes]]:
    while True:
        header = raw.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        stream, length = _HEADER.unpack(header)
        frame = raw.read(length)
        if len(frame) < length:
            return
        yield stream, frame


def _seconds(stamp: bytes) -> float:
    """Parse a timestamp such as ``2026-01-02T03:04:05.123456789Z``; return Unix seconds."""
    text = stamp.decode("ascii", "replace").removesuffix("Z")
    whole, _point, fraction = text.partition(".")
    try:
        moment = datetime.fromisoformat(whole).replace(tzinfo=UTC)
        return moment.timestamp() + float(f"0.{fraction or 0}")
    except ValueError:
        return 0.0
