"""``python -m yardscrapy``."""

import sys

from yardscrapy.cli import main

if __name__ == "__main__":
    sys.exit(main())
