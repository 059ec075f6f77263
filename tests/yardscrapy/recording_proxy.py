"""HTTP proxy that answers from a recording, http and https, for clients that are not ours."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.yardkit.tls_server import own_context
from yardkit.fetched import Fetched
from yardkit.protocol import DownloaderSettings, DownloadRequest
from yardkit.recordings import open_recording
from yardkit.recordings.replay import Replay

_AS_RECORDED = DownloaderSettings(
    raw_bodies=True, follow_redirects=False, max_body_bytes=256 * 1024 * 1024
)
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection", b"keep-alive"})


class _Proxy:
    def __init__(self, recording: Path, folder: Path) -> None:
        self._replay = Replay(open_recording(recording), _AS_RECORDED)
        self._tls = own_context(folder)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, OSError):
            await self._serve(reader, writer)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        base = ""
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
            if method == "CONNECT":
                base = f"https://{target.removesuffix(':443')}"
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                await writer.start_tls(self._tls)
                continue
            length = next(
                (
                    int(line.partition(b":")[2])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                ),
                0,
            )
            body = await reader.readexactly(length)
            url = base + target
            fetched = self._replay.answer(DownloadRequest(url=url, method=method, body=body))
            if not fetched.status:
                if urlsplit(url).path == "/robots.txt":
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    continue
                # A failed download, as at an agent.
                return
            writer.write(_response(fetched))
            await writer.drain()


def _response(fetched: Fetched) -> bytes:
    lines = [f"HTTP/1.1 {fetched.status} Recorded".encode()]
    lines += [
        name + b": " + value for name, value in fetched.raw_headers if name.lower() not in _FRAMING
    ]
    lines.append(f"Content-Length: {len(fetched.body)}".encode())
    return b"\r\n".join(lines) + b"\r\n\r\n" + fetched.body


@contextmanager
def recording_proxy(recording: Path, folder: Path) -> Iterator[str]:
    """Serve on a free port of 127.0.0.1 until the block ends; its address."""
    proxy = _Proxy(recording, folder)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    started = asyncio.start_server(proxy.handle, "127.0.0.1", 0, limit=1024 * 1024)
    server = asyncio.run_coroutine_threadsafe(started, loop).result(10)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
