"""Recordings of WARC and HAR files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from yardkit.recordings.base import Recorded
from yardkit.recordings.index import FetchIndex, Place


class Archive(Protocol):
    """One file with recorded fetches. Reads are independent of each other."""

    def index(self, index: FetchIndex, file: int) -> None:
        """Add its responses in order, as those of file number ``file``.

        Raises ``RecordingError``.
        """

    def read(self, place: Place, limit: int) -> tuple[Recorded, str]:
        """Return (response, payload digest of the record that holds its body; "": it is complete).

        Raises ``RecordingError``.
        """

    def close(self) -> None:
        """Close the file."""


class ArchiveRecording:
    """Recorded fetches of files in their order. Raises ``RecordingError`` for a damaged one."""

    def __init__(self, archives: Sequence[Archive]) -> None:
        self._archives = archives
        self._index = FetchIndex()
        for number, archive in enumerate(archives):
            archive.index(self._index, number)
        self._index.finish()

    def find(self, method: str, url: str, body: bytes, nth: int, limit: int) -> Recorded | None:
        found = self._index.find(method, url, body, nth)
        if found is None:
            return None
        place, is_last = found
        recorded, payload = self._archives[place.file].read(place, limit)
        if payload:
            holder = self._index.find_payload(payload)
            if holder is None:
                return None
            original, _ = self._archives[holder.file].read(holder, limit)
            recorded = dataclasses.replace(recorded, body=original.body)
        return recorded if is_last else dataclasses.replace(recorded, is_last=False)

    def close(self) -> None:
        self._index.close()
        for archive in self._archives:
            archive.close()
