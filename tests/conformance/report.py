"""What a run says: totals, reasons, the JSON file and the page."""

import collections
import json
import pathlib
import re

import jinja2
import torch

from .cells import DTYPES, FAILS, FALLBACK, KNOWN, NATIVE, SKIPPED, STATUSES
from .databases import runner_of

TEMPLATE = pathlib.Path(__file__).with_name("page.html.j2")
WORST_FIRST = (FAILS, KNOWN, FALLBACK, NATIVE, SKIPPED)


def totals(results):
    """{database: {variant: {status: count}}}"""
    counts = {}
    for cell, result in results.items():
        if cell.database not in counts:
            counts[cell.database] = {
                variant: dict.fromkeys(STATUSES, 0)
                for variants in runner_of(cell.database).SIDES.values()
                for variant in variants
            }
        counts[cell.database][cell.variant][result.status] += 1
    return counts


def entry_totals(results, database):
    """{status: entries of float32}: the worst of an entry's variants counts."""
    entries = collections.defaultdict(set)
    for cell, result in results.items():
        if cell.dtype == "float32" and cell.database == database:
            entries[cell.op].add(result.status)
    return collections.Counter(worst(statuses) for statuses in entries.values())


def worst(statuses):
    return min(statuses, key=WORST_FIRST.index)


def families(results, status):
    """[(reason, cells, entries)], the most frequent first; reasons may differ in numbers."""
    groups = collections.defaultdict(list)
    for cell, result in results.items():
        if result.status == status:
            reasons = (
                result.fallbacks if status == FALLBACK else [re.sub(r"\d+", "N", result.reason)]
            )
            for reason in reasons:
                groups[reason].append(cell.op)
    rows = [(reason, len(ops), sorted(set(ops))) for reason, ops in groups.items()]
    return sorted(rows, key=lambda row: -row[1])


def text(results, missing, top=15):
    """The totals for a terminal."""
    lines = [f"{'':28}" + "".join(f"{status:>10}" for status in STATUSES)]
    counts = totals(results)
    rows = [(f"{d} {v}", by) for d, variants in counts.items() for v, by in variants.items()]
    for title, by_status in rows:
        lines.append(f"{title:28}" + "".join(f"{by_status[s]:10}" for s in STATUSES))
    sums = [sum(by_status[s] for _, by_status in rows) for s in STATUSES]
    lines.append(f"{'all':28}" + "".join(f"{number:10}" for number in sums))
    for database in counts:
        entries = entry_totals(results, database)
        run = sum(entries.values()) - entries[SKIPPED]
        if run:
            lines.append(
                f"{database}, float32: {entries[NATIVE]} of {run} entries run on the device in "
                f"every variant ({100 * entries[NATIVE] / run:.1f} %)"
            )
    if missing:
        lines.append(f"not run: {missing} cells")
    for status, title in (
        (FAILS, "failures"),
        (KNOWN, "known differences"),
        (FALLBACK, "operators on the CPU"),
    ):
        rows = families(results, status)[:top]
        if rows:
            lines += ["", f"Most frequent {title} (cells):"]
        for reason, count, ops in rows:
            lines.append(f"{count:6}  {reason}: {', '.join(ops[:4])}{' ...' if ops[4:] else ''}")
    return "\n".join(lines)


def about(samples, missing, every):
    return {
        "every": every,
        "not_run": missing,
        "torch": torch.__version__,
        "adapter": torch.webgpu.get_device_name(),
        "samples": samples or "all",
    }


def write_json(path, results, run):
    cells = [
        {k: v for k, v in (cell._asdict() | result._asdict()).items() if v not in ("", ())}
        for cell, result in sorted(results.items())
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**run, "totals": totals(results), "cells": cells}, indent=0) + "\n")


def square(results_of_variants):
    """(status, text to show on hover) of some variants."""
    if not results_of_variants:
        return None
    status = worst(result.status for result in results_of_variants.values())
    lines = []
    for variant, result in results_of_variants.items():
        line = f"{variant}: {result.status}"
        said = result.detail or result.reason
        if result.status == FALLBACK:
            said = ", ".join(result.fallbacks)
        lines.append(f"{line} ({said})" if said else line)
    return status, "\n".join(lines)


def section(results, database):
    """One table of the page: its columns, and the squares of every entry."""
    table = collections.defaultdict(lambda: collections.defaultdict(dict))
    present = set()
    for cell, result in sorted(results.items()):
        if cell.database == database:
            table[cell.op][cell.dtype][cell.variant] = result
            present.add((cell.dtype, cell.variant))
    columns = [
        (dtype, side, names)
        for dtype in DTYPES
        for side, names in runner_of(database).SIDES.items()
        if any((dtype, name) in present for name in names)
    ]
    rows = {
        op: [
            square({v: by_dtype[dtype][v] for v in names if v in by_dtype[dtype]})
            for dtype, _, names in columns
        ]
        for op, by_dtype in sorted(table.items())
    }
    return {
        "columns": [(dtype, side) for dtype, side, _ in columns],
        "widths": collections.Counter(dtype for dtype, _, _ in columns),
        "rows": rows,
    }


def write_page(path, results, run):
    counts = totals(results)
    template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = template.from_string(TEMPLATE.read_text())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        page.render(
            run=run,
            sections={database: section(results, database) for database in counts},
            totals=counts,
            statuses=STATUSES,
            marks={NATIVE: "✓", FALLBACK: "C", KNOWN: "≠", FAILS: "✗", SKIPPED: "·"},
        )
    )
