"""Opens what a path names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from yardkit.recordings.archives import Archive, ArchiveRecording
from yardkit.recordings.base import Recording, RecordingError
from yardkit.recordings.folder import FolderRecording
from yardkit.recordings.har import HarFile

_WARC: Final = (".warc", ".warc.gz")
_HAR: Final = ".har"


def open_recording(path: Path) -> Recording:
    """Open a WARC or HAR file, a folder with such files, or a folder mapped to host names.

    Files of a folder and its subfolders are read in the order of their paths. Indexing reads each
    file once. Raises ``RecordingError``.
    """
    if path.is_dir():
        archives = sorted(found for found in path.rglob("*") if _is_archive(found))
        return ArchiveRecording([_open(each) for each in archives]) if archives else _folder(path)
    if not path.exists():
        raise RecordingError(f"{path}: there is no such file or folder")
    if not _is_archive(path):
        raise RecordingError(f"{path}: use a folder, or a file .warc, .warc.gz or .har")
    return ArchiveRecording([_open(path)])


def _is_archive(path: Path) -> bool:
    return path.name.endswith((*_WARC, _HAR)) and path.is_file()


def _open(path: Path) -> Archive:
    if path.name.endswith(_HAR):
        return HarFile(path)
    try:
        from yardkit.recordings.warc import WarcFile
    except ModuleNotFoundError as error:
        raise RecordingError(
            f"{path}: WARC files need {error.name}, which is not installed; "
            "install the SDK as yardspider[local]"
        ) from error
    return WarcFile(path)


def _folder(path: Path) -> Recording:
    if not any(found.is_dir() for found in path.iterdir()):
        raise RecordingError(f"{path}: it holds no .warc, .warc.gz or .har, and no host's folder")
    return FolderRecording(path)
