"""Command line: ``python -m examples.llm train|generate``."""

import sys

from .cli import main

sys.exit(main())
