"""Examples that run from a checkout: ``python -m examples.digits train``."""
