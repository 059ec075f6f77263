"""Messages that carry items and files of runs, fetchers and imports."""

from __future__ import annotations

from typing import Final

from yardkit.protocol.base import Message

# Size of a batch's JSON lines, unless a single item is larger.
BATCH_BYTES: Final = 1024 * 1024
BATCH_ITEMS: Final = 1000
# Largest item, as JSON.
MAX_ITEM_BYTES: Final = 8 * 1024 * 1024
# Data bytes of one ``FileChunk``.
CHUNK_BYTES: Final = 4 * 1024 * 1024


class ItemBatch(Message, frozen=True, kw_only=True, tag="item_batch"):
    """Consecutive items of one producer; each is identified by (producer, boot, number).

    ``producer``: ``run:<id>``, ``biz:<project id>/<name>`` or ``source:<project id>/<name>``;
    ``requests:<run>`` and ``pages:<run>`` for the requests and the kept pages of a run.
    ``first``: number of the first item; numbers count from 1 without gaps in (producer, boot).
    ``lines``: a zstd frame of ``count`` JSON lines ``["<address of the page, or empty>", {item}]``
    of ``raw_bytes`` bytes. ``at``: Unix seconds. ``once``: identifies a batch that another process
    may produce again, such as the records of one stored request; numbers are then not compared,
    and of equal ``once`` the first is stored. ``token`` proves a run, as in the other messages of
    runs.
    """

    producer: str
    boot: str
    first: int
    count: int
    lines: bytes
    raw_bytes: int
    at: float
    once: str = ""
    token: str = ""


class FileChunk(Message, frozen=True, kw_only=True, tag="file_chunk"):
    """One part of a file that a run keeps, at most ``CHUNK_BYTES`` of data.

    ``name``: path below the run's files, with ``/``. ``part`` counts from 0 to ``parts - 1``.
    ``size`` and ``sha256`` (hex) are those of the whole file. Of equal names the last complete file
    is shown.
    """

    producer: str
    boot: str
    name: str
    content_type: str
    part: int
    parts: int
    size: int
    sha256: str
    data: bytes
    at: float
    token: str = ""
