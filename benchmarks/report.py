"""The tables that people read, and the JSON that programs read."""

import datetime
import math
import platform
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from .registry import HIGHER_IS_BETTER, Row
from .worker import Result

NAME_WIDTH, UNIT_WIDTH, CELL_WIDTH = 60, 8, 15


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


def times_faster(row: Row, results: dict[str, Result], one: str, other: str) -> float | None:
    """None where one of them has no figure, or where the figure is no speed."""
    values = [results[name].value if name in results else None for name in (one, other)]
    if None in values or row.unit not in (*HIGHER_IS_BETTER, "us/op", "ms"):
        return None
    ratio = values[0] / values[1]
    return ratio if row.unit in HIGHER_IS_BETTER else 1 / ratio


def shown(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


class Tables:
    """Markdown tables that grow while the rows are measured: a heading per group, then its rows."""

    def __init__(self, peers: list[str]) -> None:
        self.peers = peers
        # Columns that say how many times faster the device under test is than each other peer.
        self.compared = [("webgpu", peer) for peer in peers[1:]] if peers[0] == "webgpu" else []
        self.lines: list[Line] = []

    def _table_line(self, first: str, unit: str, cells: list[str]) -> None:
        padded = [first.ljust(NAME_WIDTH), unit.ljust(UNIT_WIDTH)]
        padded += [text.rjust(CELL_WIDTH) for text in cells]
        print(f"| {' | '.join(padded)} |", flush=True)

    def _open_group(self, group: str) -> None:
        print(f"\n## {group}\n")
        headings = [*self.peers, *(" / ".join(pair) for pair in self.compared)]
        headings += ["peak MiB", "of the next's", "first use, s"]
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
        cells += [shown(times_faster(line.row, line.results, *pair)) for pair in self.compared]
        first, *others = (line.results[name] for name in self.peers)
        peak = first.allocated
        cells.append("" if peak is None else number(peak / 2**20))
        other = others[0].allocated if others else None
        cells.append(shown(peak / other if peak is not None and other else None))
        cells.append("" if first.first is None else number(first.first))
        self._table_line(line.row.name, line.row.unit, cells)

    def ratios(self, peer: str) -> dict[str, float]:
        """By row: how many times faster the device under test is than this peer."""
        values = {x.row.name: times_faster(x.row, x.results, "webgpu", peer) for x in self.lines}
        return {name: value for name, value in values.items() if value is not None}

    def close(self) -> None:
        self._close_group()
        if self.compared and self.lines:
            print("\n## Summary\n")
        for _, peer in self.compared:
            values = list(self.ratios(peer).values())
            if values:
                print(
                    f"- webgpu / {peer}: geometric mean {geometric_mean(values):.2f} of "
                    f"{len(values)} rows; {sum(v >= 1 for v in values)} at 1 or above, "
                    f"{sum(v < 0.4 for v in values)} below 0.4, lowest {min(values):.3f}."
                )

    def plot(self, path: Path) -> None:
        """Bars of how many times faster the device under test is than the next peer, by row."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        peer = self.compared[0][1]
        ratios = self.ratios(peer)
        groups = {line.row.name: line.row.group for line in self.lines}
        colors = {group: f"C{k % 10}" for k, group in enumerate(dict.fromkeys(groups.values()))}
        figure, axes = pyplot.subplots(figsize=(10, 1.5 + 0.22 * len(ratios)))
        axes.barh(list(ratios), list(ratios.values()), color=[colors[groups[n]] for n in ratios])
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xlabel(f"times as fast as {peer}")
        axes.invert_yaxis()
        axes.margins(y=0.005)
        axes.tick_params(axis="y", labelsize=7)
        there = dict.fromkeys(groups[name] for name in ratios)
        handles = [pyplot.Rectangle((0, 0), 1, 1, color=colors[group]) for group in there]
        figure.legend(handles, there, loc="outside lower center", ncols=3, fontsize=8)
        figure.set_layout_engine("constrained")
        figure.savefig(path, dpi=120)
        pyplot.close(figure)


def as_json(introductions: dict[str, str], scale: str, lines: list[Line]) -> dict:
    return {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
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
