"""Items and files of local runs in a folder, in the layout of the platform's datasets.

segments/run-<n>/<number>.parquet    items, with the columns of ``yardkit.items.columns``
files/run-<n>/<name>                 files
columns.json                         the columns of all runs
"""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from yardkit.items import segments
from yardkit.items.batches import ReadItem
from yardkit.items.columns import Columns
from yardspider.errors import BadInput, RunFailed
from yardspider.files import RunFile
from yardspider.item_lines import ItemEncoder
from yardspider.outputs import StoredAtOnce

COLUMNS_FILE: Final = "columns.json"
# A segment is written when it has this many items or bytes of JSON, and at the end of the run.
SEGMENT_ITEMS: Final = 50_000
_SEGMENT_BYTES: Final = 64 * 1024 * 1024
_INCARNATION: Final = "local"

_decoder: Final = msgspec.json.Decoder(tuple[str, msgspec.Raw])


class LocalDataset(StoredAtOnce):
    """Sink of one local run; the run gets the next number of the folder.

    Raises ``BadInput`` when pyarrow is not installed or the folder cannot be used.

    Args:
        dropped: counts items that are given up, by reason; shared with the accounting.
    """

    def __init__(self, folder: Path, dropped: dict[str, int]) -> None:
        super().__init__()
        try:
            import pyarrow.parquet  # noqa: F401 - the first segment comes late
        except ModuleNotFoundError as error:
            raise BadInput(
                "--dataset needs pyarrow, which is not installed; "
                "install the SDK as yardspider[local]"
            ) from error
        self._folder = folder
        self._encoder = ItemEncoder(dropped)
        try:
            self.run = _new_run(folder / "segments")
            self._columns = Columns(_read_columns(folder / COLUMNS_FILE))
        except (OSError, msgspec.DecodeError) as error:
            raise BadInput(f"cannot use the dataset {folder}: {error}") from error
        self._rows = segments.ItemRows(self.run)
        self._bytes = 0
        self._segments = 0

    def add(self, item: dict[str, Any], url: str = "") -> None:
        line = self._encoder.line(item, url)
        if line is None:
            return
        self.taken += 1
        raw = bytes(_decoder.decode(line)[1])
        self._rows.add(
            incarnation=_INCARNATION,
            seqs=[self.taken],
            at=time.time(),
            items=[ReadItem(url, raw, msgspec.json.decode(raw))],
            flags=[None],
        )
        self._bytes += len(raw)
        if len(self._rows) >= SEGMENT_ITEMS or self._bytes >= _SEGMENT_BYTES:
            self._write()

    def put_file(self, file: RunFile) -> None:
        path = self._folder / "files" / f"run-{self.run}" / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{os.getpid()}.part")
        with temporary.open("wb") as target:
            for part in range(file.parts):
                target.write(file.read(part))
        file.close()
        temporary.replace(path)

    async def finish(self, limit_seconds: float) -> None:
        if len(self._rows):
            self._write()

    def _write(self) -> None:
        table, _ = segments.build(self._rows, self._columns)
        self._segments += 1
        path = self._folder / "segments" / f"run-{self.run}" / f"{self._segments:05}.parquet"
        try:
            if self._columns.changed:
                columns = msgspec.json.encode(self._columns.stored())
                _replace(self._folder / COLUMNS_FILE, columns)
                self._columns.changed = False
            _replace(path, segments.write(table))
        except OSError as error:
            raise RunFailed(f"cannot write {path}: {error.strerror or error}") from error
        self._rows = segments.ItemRows(self.run)
        self._bytes = 0


def _new_run(folder: Path) -> int:
    """Make the folder of the next run; return its number."""
    folder.mkdir(parents=True, exist_ok=True)
    taken = [
        int(number)
        for path in folder.iterdir()
        if (number := path.name.removeprefix("run-")).isdecimal()
    ]
    for run in itertools.count(max(taken, default=0) + 1):
        try:
            (folder / f"run-{run}").mkdir()
        except FileExistsError:
            # Another run began meanwhile.
            continue
        return run
    raise AssertionError("unreachable")


def _read_columns(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    return msgspec.json.decode(path.read_bytes(), type=list[dict[str, str]])


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)
