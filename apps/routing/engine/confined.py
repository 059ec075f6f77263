"""Access to files below an allow-list of folders, so that rules cannot write elsewhere.

Each path component below an allowed folder is opened on its own with ``O_NOFOLLOW``. A symbolic
link that is created between the check and the use therefore cannot redirect the access.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PathNotAllowed(ValueError):
    """Raised when a path is below none of the allowed folders."""


class ConfinedPath:
    """Path of a file below one of ``folders``; a relative path is resolved against the first.

    Raises ``PathNotAllowed`` if the path has ``..`` or NUL, names no file, or is below no folder.
    """

    def __init__(self, path: str, folders: Sequence[Path]) -> None:
        given = PurePosixPath(path)
        if "\x00" in path or path.endswith("/") or not given.name or ".." in given.parts:
            raise PathNotAllowed("a path of a file is needed, without '..'")
        for folder in folders:
            if not given.is_absolute():
                self._folder, self._below = folder, given
                break
            # The path may use the folder's configured name or its resolved one (without links).
            named = [base for base in (folder, folder.resolve()) if given.is_relative_to(base)]
            if named and given != PurePosixPath(named[0]):
                self._folder, self._below = folder, given.relative_to(named[0])
                break
        else:
            raise PathNotAllowed("the path is outside the folders that are allowed")
        self.name: Final = given.name

    @contextlib.contextmanager
    def folder(self) -> Iterator[int]:
        """Yield a file descriptor of the parent folder; missing folders are created (mode 0700).

        Raises ``OSError``; a symbolic link in the path gives ``ENOTDIR``.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        at = os.open(self._folder.resolve(), _FOLDER)
        try:
            for part in self._below.parts[:-1]:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=at)
                    os.fsync(at)
                below = os.open(part, _FOLDER, dir_fd=at)
                os.close(at)
                at = below
            yield at
        finally:
            os.close(at)


def open_regular(name: str, flags: int, folder: int) -> int:
    """Open a regular file relative to the descriptor ``folder`` and return its descriptor.

    A file created by ``O_CREAT`` in ``flags`` gets mode 0600. Symbolic links are not followed.

    Raises ``OSError``; ``IsADirectoryError`` if the name is not a regular file.
    """
    more = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags | more, 0o600, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError("no regular file")
    return descriptor
