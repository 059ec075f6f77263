"""``python -m yardspider``."""

import sys

from yardspider.cli import main

if __name__ == "__main__":
    sys.exit(main())
