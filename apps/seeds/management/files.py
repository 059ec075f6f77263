"""Files of seeds: read line by line, written atomically, compressed according to their names."""

from __future__ import annotations

import gzip
import os
import secrets
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final

from django.core.management.base import CommandError

FAILED: Final = 1
BAD_INPUT: Final = 2
_FLUSH_LINES: Final = 2000


def read_lines(name: str, most_bytes: int) -> Iterator[bytes]:
    """Yield the lines of a file, or of standard input for ``-``, without their line breaks.

    A line longer than ``most_bytes`` is cut slightly above the limit, so that the caller can detect
    it.

    Raises:
        CommandError: the file cannot be read.
    """
    try:
        with _opened(name) as file:
            while line := file.readline(most_bytes + 2):
                if not line.endswith(b"\n"):
                    while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
                        pass
                yield line.rstrip(b"\r\n")
    except (OSError, EOFError, zlib.error) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise CommandError(f"{name}: {text}", returncode=BAD_INPUT) from error


def _opened(name: str) -> IO[bytes]:
    if name == "-":
        return open(sys.stdin.fileno(), "rb", closefd=False)
    if name.endswith(".gz"):
        return gzip.open(name, "rb")  # type: ignore[return-value]
    return open(name, "rb")


def write_lines(name: str, lines: Iterable[bytes]) -> int:
    """Write a file atomically; return the number of lines. ``-`` is standard output.

    Raises:
        CommandError: the file cannot be written.
    """
    if name == "-":
        return _to_stdout(lines)
    path = Path(name)
    # In the same folder, because a rename is atomic only there.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            with beside.open("xb") as raw:
                count = _write(raw, lines, packed=name.endswith(".gz"))
                raw.flush()
                os.fsync(raw.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}", returncode=FAILED) from error
    return count


def _write(raw: Any, lines: Iterable[bytes], *, packed: bool) -> int:
    if packed:
        # mtime=0: equal seeds give an equal file.
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as file:
            return _write_all(file, lines)
    return _write_all(raw, lines)


def _to_stdout(lines: Iterable[bytes]) -> int:
    out = sys.stdout.buffer if hasattr(sys.stdout, "buffer") else None
    if out is None:
        count = 0
        for count, line in enumerate(lines, 1):  # noqa: B007 - the last one is wanted
            sys.stdout.write(line.decode() + "\n")
        return count
    try:
        count = _write_all(out, lines)
        out.flush()
    except BrokenPipeError:
        # The reader closed the pipe (``| head``); the interpreter must not flush it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise CommandError("nobody reads any more", returncode=FAILED) from None
    return count


def _write_all(file: Any, lines: Iterable[bytes]) -> int:
    count = 0
    waiting: list[bytes] = []
    for count, line in enumerate(lines, 1):  # noqa: B007 - the last one is wanted
        waiting.append(line)
        if len(waiting) == _FLUSH_LINES:
            file.write(b"\n".join(waiting) + b"\n")
            waiting = []
    if waiting:
        file.write(b"\n".join(waiting) + b"\n")
    return count
