"""``python -m yardkit.alive [URL]``: health check of a container, exit status 0 or 1.

Reads the heartbeat file ``CRAWLYARD_HEARTBEAT_PATH``, or requests the URL and expects 200. Starts
in a tenth of the time of a management command, since it runs often.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from yardkit.heartbeat import read_beat
from yardkit.liveness import FILE_SETTING

# Longer than any step of a healthy daemon.
OLDEST_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 4.0


def check_file(path: Path, *, oldest_seconds: float = OLDEST_SECONDS) -> str:
    """Return the problem of the process that writes this heartbeat file, or ""."""
    beat = read_beat(path)
    if beat is None:
        return f"{path}: no sign of life"
    if beat.state == "stopped":
        return f"{beat.name}: stopped"
    age = time.time() - beat.at
    return f"{beat.name}: last sign of life {age:.0f} s ago" if age > oldest_seconds else ""


def check_address(url: str) -> str:
    """Return the problem of the web process at ``url``, or ""."""
    # Imported late: the check of a file runs much more often and needs none of it.
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "127.0.0.1", parts.port, timeout=_ANSWER_SECONDS
    )
    try:
        connection.request("GET", parts.path or "/", headers={"Host": "localhost"})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"{url}: {type(error).__name__}: {error}"
    finally:
        connection.close()
    return "" if status == 200 else f"{url}: answers {status}"


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the check, print a problem in one line, return the exit status."""
    file = environ.get(FILE_SETTING, "")
    if arguments:
        problem = check_address(arguments[0])
    else:
        problem = check_file(Path(file)) if file else f"{FILE_SETTING} is not set"
    if problem:
        sys.stdout.write(f"{problem}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
