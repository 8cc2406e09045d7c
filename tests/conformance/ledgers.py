"""Ledgers: tables of what does not pass, and why.

A row is a reason, or a mapping of the reason and the versions of PyTorch that it is about: `since`
one, `before` one.
"""

import torch


def holds(row, version=torch.__version__):
    """Whether the row is about this version."""
    if isinstance(row, str):
        return True
    return row.get("since", "0") <= version < row.get("before", "999")


def reason(row):
    return row if isinstance(row, str) else row["reason"]


def reasons(rows, version=torch.__version__):
    """The reasons of the rows that are about this version."""
    return {name: reason(row) for name, row in rows.items() if holds(row, version)}
