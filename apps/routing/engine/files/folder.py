"""Access to the files of a rule set, restricted to the folder of the main file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

MAX_FILES: Final = 200
# A single file may use the whole limit, because an export writes only one file.
MAX_FILE_BYTES: Final = 8 * 1024 * 1024
MAX_ALL_BYTES: Final = MAX_FILE_BYTES
# A folder with more entries is probably included by mistake.
_MOST_NAMES: Final = 10_000
SUFFIXES: Final = (".yaml", ".yml")


class FileRefused(ValueError):
    """File or folder that cannot be read, with a stable ``code`` for the reason."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Folder:
    """Finds and reads the main file and its includes. All methods may raise ``FileRefused``."""

    def __init__(self, main: Path) -> None:
        self.main = main.name
        self._folder = os.path.realpath(main.parent)
        self._main = os.path.realpath(main)
        self._room = MAX_ALL_BYTES

    def included(self, include: str) -> list[str]:
        """Return the paths of an included file, or of all YAML files of an included directory.

        Paths are relative to the folder. Directories are not read recursively, and hidden
        files are skipped.
        """
        parts = PurePosixPath(include).parts
        if not parts or include.startswith(("/", "~")) or ".." in parts or "\\" in include:
            text = "a path below the folder of the main file is needed, without '..'"
            raise FileRefused("include_outside", text)
        name = "/".join(parts)
        real = self._real(name)
        try:
            mode = os.stat(real).st_mode
        except OSError as error:
            raise FileRefused("include_missing", f"cannot be read: {_why(error)}") from None
        if stat.S_ISDIR(mode):
            return list(self._files_of(name, real))
        if not name.lower().endswith(SUFFIXES):
            raise FileRefused("not_yaml_file", f"a file ends in {' or '.join(SUFFIXES)}")
        return [name]

    def key(self, name: str) -> str:
        """Return the real path of a file, which identifies it under different names."""
        real = self._real(name)
        if real == self._main:
            raise FileRefused("include_circle", "the main file cannot include itself")
        return real

    def read(self, name: str) -> bytes:
        """Return the content of a file. The size limit counts all files read so far."""
        real = self._main if name == self.main else self._real(name)
        # O_NONBLOCK: opening a named pipe must not wait for a writer.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        try:
            descriptor = os.open(real, flags)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise FileRefused("not_a_file", "this is no regular file")
                with open(descriptor, "rb", closefd=False) as file:
                    raw = file.read(MAX_FILE_BYTES + 1)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise FileRefused("unreadable", f"cannot be read: {_why(error)}") from None
        if len(raw) > MAX_FILE_BYTES:
            raise FileRefused("too_large", f"larger than {MAX_FILE_BYTES} bytes")
        self._room -= len(raw)
        if self._room < 0:
            raise FileRefused(
                "too_large", f"all files together have more than {MAX_ALL_BYTES} bytes"
            )
        return raw

    def _real(self, name: str) -> str:
        real = os.path.realpath(os.path.join(self._folder, name))
        if os.path.commonpath((self._folder, real)) != self._folder:
            text = "a link leads out of the folder of the main file"
            raise FileRefused("include_outside", text)
        return real

    def _files_of(self, name: str, real: str) -> Iterator[str]:
        count = 0
        try:
            with os.scandir(real) as entries:
                for entry in entries:
                    count += 1
                    if count > _MOST_NAMES:
                        text = f"the folder has more than {_MOST_NAMES} names"
                        raise FileRefused("too_many_files", text)
                    hidden = entry.name.startswith(".")
                    if not hidden and entry.name.lower().endswith(SUFFIXES):
                        yield entry.name if name == "." else f"{name}/{entry.name}"
        except OSError as error:
            raise FileRefused("unreadable", f"cannot be read: {_why(error)}") from None


def _why(error: OSError) -> str:
    return (error.strerror or "an error").lower()
