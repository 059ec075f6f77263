"""Files below folders that an operator has named: rules cannot write elsewhere.

Every step from such a folder down is opened by itself and no link is followed, so that nobody can
put one in the way between the look and the use.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Outside(ValueError):
    """The path is in none of the folders."""


class Confined:
    """The path of a file, found below one of ``folders``; a relative one is below the first.

    Raises ``Outside``.
    """

    def __init__(self, path: str, folders: Sequence[Path]) -> None:
        given = PurePosixPath(path)
        if "\x00" in path or path.endswith("/") or not given.name or ".." in given.parts:
            raise Outside("a path of a file is needed, without '..'")
        for folder in folders:
            if not given.is_absolute():
                self._folder, self._below = folder, given
                break
            # A folder may be named by the way through a link, or by where that leads.
            named = [each for each in (folder, folder.resolve()) if given.is_relative_to(each)]
            if named and given != PurePosixPath(named[0]):
                self._folder, self._below = folder, given.relative_to(named[0])
                break
        else:
            raise Outside("the path is outside the folders that are allowed")
        self.name: Final = given.name

    @contextlib.contextmanager
    def folder(self) -> Iterator[int]:
        """A descriptor of the folder that the file stands in, made where it is missing.

        Raises ``OSError``; where a link stands in the way its number is that of no directory.
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
    """A descriptor of a regular file, made with mode 0600 where ``flags`` say so.

    Raises ``OSError``; ``IsADirectoryError`` for whatever else has this name.
    """
    more = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags | more, 0o600, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError("no regular file")
    return descriptor
