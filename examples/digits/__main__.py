"""Command line: ``python -m examples.digits train|run``."""

import sys

from .cli import main

sys.exit(main())
