"""Signed addresses of objects that the center hands out to agents and runs."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Sequence

import msgspec

from yardkit.protocol.base import Message, ProtocolError


class ObjectKind(enum.StrEnum):
    """What an object is for; it is the first part of its key."""

    # The body of a response on its way from an agent to a run.
    BODIES = "bodies"
    # All kept pages of a run, to read; for the agents of a run that replays it.
    RECORDED = "recorded"
    # Pages that an agent keeps, as WARC.
    PAGES = "pages"


class SignedObject(msgspec.Struct, frozen=True, array_like=True):
    """Addresses of one object; those that were not asked for, or not allowed, are empty."""

    key: str
    put: str = ""
    get: str = ""
    delete: str = ""


class AddressesWanted(Message, frozen=True, kw_only=True, tag="addresses_wanted"):
    """Question for signed addresses, answered by ``Addresses``.

    ``count``: new objects to write, for an agent of the run. ``keys``: existing objects of the run
    to read, for one of its agents or, with ``token``, the run itself, which may also delete bodies.
    ``agent``: id of the agent, answered in ``topology.agent_addresses``; "": the run asks, and is
    answered in ``reply_to``.
    """

    run: int
    kind: ObjectKind
    count: int = 0
    keys: list[str] = []
    agent: str = ""
    reply_to: str = ""
    token: str = ""


class Addresses(Message, frozen=True, kw_only=True, tag="addresses"):
    """Answer of the center. ``packed``: ``unpack_objects`` reads it.

    ``seconds``: how long the addresses are valid, from now on. ``error``: why there are none.
    """

    run: int
    kind: ObjectKind
    packed: bytes = b""
    seconds: int = 0
    error: str = ""


class StoredBody(msgspec.Struct, frozen=True, array_like=True):
    """Body of a response in the object store.

    ``packed``: its parts in their order, as ``unpack_objects`` reads them, each with the addresses
    to get and delete it. ``sha256``: digest of the whole body, 32 bytes.

    For runs with ``result_version`` 4 an object may hold several bodies of the run: ``bodies`` with
    ``total`` bytes together, of which this one begins at ``offset``; ``sha256`` is that of all.
    """

    size: int
    sha256: bytes
    packed: bytes
    offset: int = 0
    total: int = 0
    bodies: int = 1


_decoder = msgspec.msgpack.Decoder(list[SignedObject])
# What addresses have in common, for zlib: a single one hardly repeats itself.
_COMMON = (
    b"?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%2Fus-east-1%2Fs3%2Faws4_request"
    b"&X-Amz-Date=T&X-Amz-Expires=900&X-Amz-SignedHeaders=host&X-Amz-Signature="
    b"http://https://bodies/p/run-"
)
# Unpacked, the addresses of a body of 10 GiB.
_MAX_UNPACKED_BYTES = 4 * 1024 * 1024


def pack_objects(objects: Sequence[SignedObject]) -> bytes:
    """Encode addresses, compressed: those of one store differ in little."""
    deflate = zlib.compressobj(6, zdict=_COMMON)
    return deflate.compress(msgspec.msgpack.encode(objects)) + deflate.flush()


def unpack_objects(packed: bytes) -> list[SignedObject]:
    """Decode what ``pack_objects`` made. Raises ``ProtocolError``."""
    try:
        inflate = zlib.decompressobj(zdict=_COMMON)
        data = inflate.decompress(packed, _MAX_UNPACKED_BYTES)
        return _decoder.decode(data)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not addresses of objects: {error}") from error
