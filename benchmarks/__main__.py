"""Command line: ``python -m benchmarks``."""

import sys

from .cli import main

# Each peer runs in a spawned process, which imports this module again.
if __name__ == "__main__":
    sys.exit(main())
