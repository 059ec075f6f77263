"""Server of signed addresses of objects in a folder: GET with ranges, PUT once, DELETE.

No listing, no other path, no credentials: an address alone gives access to one object.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import time
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from yardkit.liveness import FEED_SECONDS, LivenessReporter
from yardkit.objects.base import ObjectExists, ObjectMissing, ObjectStoreUnavailable
from yardkit.objects.folder import FolderStore, IncomingObject
from yardkit.objects.signing import AddressInvalid, AddressSigner
from yardkit.stop import stop_event

logger = logging.getLogger(__name__)

# That of a single PUT to S3.
MAX_OBJECT_BYTES: Final = 5 * 1024**3
# Up to this size a file is read at once in the loop's thread, which is quicker than another one.
_SMALL_BYTES: Final = 1024 * 1024
# Bodies are needed for minutes: a run fetches one again that a loss of power has taken.
_SHORT_LIVED: Final = "bodies/"
_DIGEST: Final = "sha-256=:"
_SHUTDOWN_SECONDS: Final = 2.0


class ObjectServer:
    """Handler of the requests. ``base_path``: of the public address, which a proxy may have cut."""

    def __init__(self, store: FolderStore, signer: AddressSigner, base_path: str) -> None:
        self._store = store
        self._signer = signer
        self._base_path = f"{base_path.strip('/')}/".lstrip("/")

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        path, _, query = request.raw_path.partition("?")
        if path == "/healthz":
            return web.Response(text="ok")
        path = path.removeprefix("/").removeprefix(self._base_path)
        try:
            key = self._signer.key_of(request.method, path, query, time.time())
            if request.method == "PUT":
                return await self._put(request, key)
            if request.method == "DELETE":
                self._store.delete([key])
                return web.Response(status=204)
            return self._get(request, key)
        except AddressInvalid as error:
            return web.Response(status=403, text=str(error))
        except ObjectMissing:
            return web.Response(status=404, text="no such object")
        except ObjectExists:
            return web.Response(status=409, text="the object exists")
        except ObjectStoreUnavailable as error:
            logger.error("%s %s: %s", request.method, path, error)
            return web.Response(status=507, text="the store cannot do this at the moment")

    def _get(self, request: web.BaseRequest, key: str) -> web.StreamResponse:
        if "Range" not in request.headers and self._store.head(key).size <= _SMALL_BYTES:
            return web.Response(body=self._store.get(key))
        path = self._store.local_path(key)
        if path is None or not path.is_file():
            raise ObjectMissing(key)
        return web.FileResponse(path, headers={"Content-Type": "application/octet-stream"})

    async def _put(self, request: web.BaseRequest, key: str) -> web.Response:
        if (request.content_length or 0) > MAX_OBJECT_BYTES:
            return web.Response(status=413, text=f"at most {MAX_OBJECT_BYTES} bytes")
        with contextlib.suppress(ObjectMissing):
            self._store.head(key)
            raise ObjectExists(key)
        digest = hashlib.sha256()
        with contextlib.closing(self._store.incoming(key)) as incoming:
            async for chunk in request.content.iter_any():
                digest.update(chunk)
                incoming.write(chunk)
                if incoming.size > MAX_OBJECT_BYTES:
                    return web.Response(status=413, text=f"at most {MAX_OBJECT_BYTES} bytes")
            problem = _problem(request, incoming, digest.digest())
            if problem:
                return web.Response(status=400, text=problem)
            durable = not key.startswith(_SHORT_LIVED)
            if durable:
                await asyncio.to_thread(incoming.finish, create=True)
            else:
                incoming.finish(create=True, durable=False)
        return web.Response(status=201)


def _problem(request: web.BaseRequest, incoming: IncomingObject, digest: bytes) -> str:
    """Return what is wrong with a body that was received, "" for nothing."""
    if request.content_length is not None and incoming.size != request.content_length:
        return "the body ended too early"
    stated = request.headers.get("Content-Digest", "")
    if stated.startswith(_DIGEST):
        if stated != f"{_DIGEST}{base64.b64encode(digest).decode()}:":
            return "the body does not have the digest that was stated"
    elif stated:
        return "the digest is not understood; use sha-256"
    return ""


async def serve(server: ObjectServer, host: str, port: int, life: LivenessReporter) -> None:
    """Serve until a signal. Raises ``OSError`` if the port cannot be used."""
    stop = stop_event()
    # Bodies of 10 GiB take their time; a connection without any byte does not.
    runner = web.ServerRunner(
        web.Server(server.handle, access_log=None), shutdown_timeout=_SHUTDOWN_SECONDS
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        logger.info("serves signed addresses of objects on %s:%d", host, port)
        life.ready()
        while not stop.is_set():
            life.feed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FEED_SECONDS):
                    await stop.wait()
    finally:
        life.stopping()
        await runner.cleanup()


def base_path(public_url: str) -> str:
    """Return the path of the server's public address."""
    return urlsplit(public_url).path
