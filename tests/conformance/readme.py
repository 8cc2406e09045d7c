"""The totals of a whole run, as a table in the README."""

import re

from . import report
from .cells import FAILS, FALLBACK, NATIVE, SKIPPED
from .databases import runner_of

BEGIN = "<!-- totals of make conformance, which rewrites them -->"
END = "<!-- end of totals -->"


def write(path, results):
    """Replaces what stands between the marks; a README without them is left alone."""
    old = path.read_text()
    block = f"{BEGIN}\n{table(results)}{END}"
    new = re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: block, old, flags=re.DOTALL)
    if new != old:
        path.write_text(new)


def table(results):
    lines = ["| | native | on the CPU, counted | fails |", "|---|--:|--:|--:|"]
    for database, by_variant in report.totals(results).items():
        for side, variants in runner_of(database).SIDES.items():
            counts = [
                sum(by_variant[variant][status] for variant in variants)
                for status in (NATIVE, FALLBACK, FAILS)
            ]
            lines.append(f"| {database}, {side} | " + " | ".join(map(str, counts)) + " |")
    entries = report.entry_totals(results, "operators")
    run = sum(entries.values()) - entries[SKIPPED]
    lines += [
        "",
        f"Of {run} entries of the operator database in float32, {entries[NATIVE]} "
        f"({100 * entries[NATIVE] / run:.1f} %) run wholly on the device.",
    ]
    return "\n".join(lines) + "\n"
