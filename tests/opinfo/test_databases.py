"""PyTorch's other test databases on the device: foreach functions, modules and optimizers.

As test_opinfo.py does for op_db. Here each cell is one of the conformance run (tests/conformance),
which also says how it is compared; the ledger's kind is the database's name.
"""

import os

import ledger
import pytest
from conformance import cells

# Bounded like those of test_opinfo.py; modules take them in training and in evaluation.
MAX_SAMPLES = int(os.environ.get("TORCH_WEBGPU_OPINFO_SAMPLES", "3"))
CELLS = list(cells.cells_of(("foreach", "modules", "optimizers"), "", ("float32",)))


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.op}-{cell.variant}")
def test_cell(cell):
    result = cells.compare(cell, MAX_SAMPLES)
    known = ledger.reason_for(cell.database, cell.op)
    if result.status == cells.FAILS:
        ledger.record(cell.database, cell.op, result.reason)
        if known:
            pytest.xfail(known)
        pytest.fail(f"{result.reason}: {result.detail}")
    assert not known, f"{cell.op} passes ({cell.variant}): take it out of ledger.yaml ({known})"
    if result.status == cells.SKIPPED:
        pytest.skip(result.reason)
