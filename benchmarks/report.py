"""The tables that people read, and the JSON that programs read."""

import platform
from dataclasses import asdict, dataclass

from .registry import HIGHER_IS_BETTER, Row
from .worker import Result

NAME_WIDTH, UNIT_WIDTH, CELL_WIDTH = 40, 7, 15


@dataclass(frozen=True)
class Line:
    row: Row
    results: dict[str, Result]


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.3g}" if value < 0.1 else f"{value:.{digits}f}"


def cell(result: Result) -> str:
    if result.value is None:
        return "failed" if result.failed else "-"
    if not result.spread:
        return number(result.value)
    return f"{number(result.value)} ±{result.spread / result.value:.0%}"


def times_faster(row: Row, results: dict[str, Result], one: str, other: str) -> str:
    values = [results[name].value if name in results else None for name in (one, other)]
    if None in values or row.unit not in (*HIGHER_IS_BETTER, "us/op", "ms"):
        return ""
    ratio = values[0] / values[1]
    return f"{ratio if row.unit in HIGHER_IS_BETTER else 1 / ratio:.2f}"


class Tables:
    """Markdown tables that grow while the rows are measured: a heading per group, then its rows."""

    def __init__(self, peers: list[str]) -> None:
        self.peers = peers
        # The last column: how many times faster the device under test is than the peer beside it.
        self.compared = peers[:2] if len(peers) > 1 and peers[0] == "webgpu" else []
        self.lines: list[Line] = []

    def _table_line(self, first: str, unit: str, cells: list[str]) -> None:
        padded = [first.ljust(NAME_WIDTH), unit.ljust(UNIT_WIDTH)]
        padded += [text.rjust(CELL_WIDTH) for text in cells]
        print(f"| {' | '.join(padded)} |", flush=True)

    def _open_group(self, group: str) -> None:
        print(f"\n## {group}\n")
        headings = [*self.peers, " / ".join(self.compared)] if self.compared else self.peers
        self._table_line("", "unit", headings)
        rule = ["-" * (CELL_WIDTH - 1) + ":"] * len(headings)
        self._table_line("-" * NAME_WIDTH, "-" * UNIT_WIDTH, rule)

    def _close_group(self) -> None:
        if not self.lines:
            return
        group = [line for line in self.lines if line.row.group == self.lines[-1].row.group]
        print()
        for what in dict.fromkeys(line.row.what for line in group):
            names = [line.row.name for line in group if line.row.what == what]
            print(f"- {', '.join(names)}: {what}.")
        for line in group:
            for peer, result in line.results.items():
                if reason := result.failed:
                    print(f"- **{peer} failed at {line.row.name}**: {reason}.")
        reasons = dict.fromkeys(
            (peer, result.skipped)
            for line in group
            for peer, result in line.results.items()
            if result.skipped
        )
        for peer, reason in reasons:
            print(f"- {peer} -: {reason}.")

    def add(self, line: Line) -> None:
        if not self.lines or self.lines[-1].row.group != line.row.group:
            self._close_group()
            self._open_group(line.row.group)
        self.lines.append(line)
        cells = [cell(line.results[name]) for name in self.peers]
        if self.compared:
            cells.append(times_faster(line.row, line.results, *self.compared))
        self._table_line(line.row.name, line.row.unit, cells)

    def close(self) -> None:
        self._close_group()


def as_json(introductions: dict[str, str], scale: str, lines: list[Line]) -> dict:
    return {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "scale": scale,
        "peers": introductions,
        "rows": [
            {
                "name": line.row.name,
                "group": line.row.group,
                "unit": line.row.unit,
                "what": line.row.what,
                "results": {peer: asdict(result) for peer, result in line.results.items()},
            }
            for line in lines
        ],
    }
