"""The ledger: which operators of PyTorch's database do not pass on the device yet, and why.

ledger.yaml maps a kind of test ("forward", "gradient") to {operator name: reason}; a row may be
about some versions of PyTorch only (conformance/ledgers.py). A listed operator must fail: one that
passes has to be taken out, so the ledger can only shrink. To rewrite it from a run, which leaves
the rows about other versions as they are:

    TORCH_WEBGPU_LEDGER_OUT=/tmp/failures.jsonl pytest tests/opinfo
    PYTHONPATH=tests python tests/opinfo/ledger.py /tmp/failures.jsonl
"""

import collections
import functools
import json
import os
import pathlib
import sys

import yaml
from conformance import ledgers

PATH = pathlib.Path(__file__).with_name("ledger.yaml")
HEADER = "# Operators of op_db that do not pass on the device yet. See ledger.py.\n"


@functools.cache
def load():
    return yaml.safe_load(PATH.read_text()) or {}


def reason_for(kind, op_name):
    return ledgers.reasons(load().get(kind) or {}).get(op_name)


def record(kind, op_name, reason):
    """Notes a failure for the rewriting of the ledger, if that is asked for."""
    out = os.environ.get("TORCH_WEBGPU_LEDGER_OUT")
    if out:
        with open(out, "a") as file:
            file.write(json.dumps({"kind": kind, "op": op_name, "reason": reason}) + "\n")


def rewrite(failures):
    """Replaces the ledger by the failures of a full run (an iterable of JSON lines)."""
    table = collections.defaultdict(dict)
    for line in failures:
        entry = json.loads(line)
        row = (load().get(entry["kind"]) or {}).get(entry["op"])
        versions = {} if row is None or isinstance(row, str) else row
        table[entry["kind"]][entry["op"]] = (
            {**versions, "reason": entry["reason"]} if versions else entry["reason"]
        )
    for kind, rows in load().items():
        table[kind].update({name: row for name, row in rows.items() if not ledgers.holds(row)})
    text = yaml.safe_dump(
        {kind: dict(sorted(ops.items())) for kind, ops in sorted(table.items())}, width=1000
    )
    PATH.write_text(HEADER + text)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        rewrite(file)
