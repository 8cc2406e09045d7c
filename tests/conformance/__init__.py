"""PyTorch's test databases on the device against the CPU: every entry, dtype and variant.

`python -m tests.conformance` (`make conformance`) runs it in worker processes and writes the page
docs/ops.html. comparison.py, which tests/opinfo shares, says how an entry is run and compared.
"""
