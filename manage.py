#!/usr/bin/env python
"""Entry point of every command: puts the code on the path, names the settings, runs Django."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "platform")]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "crawlyard.settings.base")

if __name__ == "__main__":
    from crawlyard.shutdown import leave  # isort: skip - before what has exit handlers of its own
    from crawlyard.entry import main

    leave(main(sys.argv))
