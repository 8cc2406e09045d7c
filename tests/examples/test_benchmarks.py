"""Each benchmark runs at its smallest size and refuses to time what is wrong. Nothing is timed."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import cli, operators, timing, worker
from benchmarks.models import ResNet18
from benchmarks.peers import PEERS
from benchmarks.peers.base import Unavailable
from benchmarks.peers.torch_peer import TorchPeer
from benchmarks.registry import UNITS, WrongResult, parse_size, rows, size_text
from benchmarks.report import Line, Tables, times_faster

TINY = rows("tiny", cli.SIZES["tiny"])
# In bfloat16, networks take long on a CPU: small parts do not, and others are in float16.
LONG = ("LLaMA of 219M 1x4, AMP bf16", "GPT-2 small 1x4, AMP bf16")


@pytest.fixture(autouse=True)
def short_samples(monkeypatch):
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 1e-9)
    monkeypatch.setattr(timing, "WARM_UP_SECONDS", 0)


@pytest.fixture(scope="module")
def cpu():
    return TorchPeer("cpu")


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=pytest.mark.long if row.name in LONG else ())
        for row in TINY
    ],
)
def test_row_runs(cpu, row):
    result = worker.run_row(row, cpu)
    assert not result.failed
    if result.skipped:
        assert any(reason in result.skipped for reason in ("host", "no such count", "no module"))
    else:
        assert result.value > 0


@pytest.mark.parametrize("scale", ["tiny", "small", "full"])
def test_names_are_unique(scale):
    names = [row.name for row in rows(scale, cli.SIZES[scale])]
    assert len(set(names)) == len(names)


class BrokenAdd(TorchPeer):
    """A device whose results are wrong, or lie elsewhere."""

    def __init__(self, damage):
        super().__init__("cpu")
        self.damage = damage

    def compile(self, function, handles, *, stepwise):
        run = super().compile(function, handles, stepwise=stepwise)
        return lambda: self.damage(run())


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda y: y + 1, "relative error"),
        (lambda y: y * math.nan, "relative error nan"),
        (lambda y: y[1:], "shape"),
        (lambda y: y.to("meta"), "is on meta"),
    ],
)
def test_wrong_results_are_not_timed(damage, reason):
    (row,) = (row for row in TINY if row.name.startswith("add "))
    result = worker.run_row(row, BrokenAdd(damage))
    assert result.value is None
    assert reason in result.failed


def test_fallbacks_are_not_timed(cpu, monkeypatch):
    monkeypatch.setattr(torch.cpu, "fallbacks", lambda: {"aten::add.out": 1}, raising=False)
    with pytest.raises(WrongResult, match=r"ran on the CPU: aten::add\.out"):
        cpu.require_on_device(torch.zeros(1))


def test_unexpected_errors_are_one_rows_result(cpu, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(operators, "operator", fail)
    (row,) = (row for row in TINY if row.name.startswith("add "))
    assert worker.run_row(row, cpu).failed == "RuntimeError: first line"


def test_measure_separates_enqueue_from_finish(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    pending = [0]

    def run():
        clock[0] += 1
        pending[0] += 1

    def synchronize():
        clock[0] += 10 * pending[0]
        pending[0] = 0

    assert timing.measure(run, synchronize, enqueue_only=True).median == 1
    assert timing.measure(run, synchronize).median == 11


def test_units():
    assert UNITS["TFLOP/s"](3e12, 1.5) == 2
    assert UNITS["GB/s"](3e9, 1.5) == 2
    assert UNITS["us/op"](1000, 2e-3) == 2
    assert UNITS["ms"](1, 2e-3) == 2


@pytest.mark.parametrize("text", ["1 GiB", "64 MiB", "4 KiB"])
def test_sizes_round_trip(text):
    assert size_text(parse_size(text)) == text


def test_resnet_is_resnet18():
    assert sum(p.numel() for p in ResNet18(64).parameters()) == 11_173_962


def test_tables_and_json(tmp_path, capfd):
    path = tmp_path / "bench.json"
    args = ["--peers", "cpu", "--scale", "tiny", "--only", "matmul f", "--json", str(path)]
    assert cli.main(args) == 0
    out = capfd.readouterr().out
    assert "| matmul f32 8 " in out
    document = json.loads(path.read_text())
    names = [row["name"] for row in document["rows"]]
    assert names[:2] == ["matmul f32 8", "matmul f16 8"]
    assert all(row["results"]["cpu"]["value"] > 0 for row in document["rows"])


def lines_of(**rates):
    """One row for each argument: the figures of webgpu and of another peer, faster is higher."""
    (row,) = (row for row in TINY if row.name == "matmul f32 8")
    for name, values in rates.items():
        results = [worker.Result(value) for value in values]
        yield Line(replace(row, name=name), dict(zip(("webgpu", "other"), results, strict=True)))


def test_ratios_and_their_mean(capsys, tmp_path):
    tables = Tables(["webgpu", "other"])
    for line in lines_of(twice=(2.0, 1.0), eighth=(1.0, 8.0), absent=(1.0, None)):
        tables.add(line)
    tables.close()
    assert tables.ratios("other") == {"twice": 2.0, "eighth": 0.125}
    out = capsys.readouterr().out
    assert "geometric mean 0.50 of 2 rows; 1 at 1 or above, 1 below 0.4, lowest 0.125" in out
    tables.plot(tmp_path / "ratios.png")
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")


def test_times_are_better_when_lower():
    (row,) = (row for row in TINY if row.name == "digits epoch")
    results = {"webgpu": worker.Result(1.0), "other": worker.Result(3.0)}
    assert times_faster(row, results, "webgpu", "other") == 3.0


def test_peak_memory_and_first_use():
    peer = TorchPeer("webgpu")
    (row,) = (row for row in TINY if row.name.startswith("copy "))
    result = worker.run_row(row, peer)
    size = cli.SIZES["tiny"]
    assert 2 * size <= result.allocated <= result.reserved
    assert result.first > 0


def test_parts_are_compared(cpu):
    """Also where the first part is right."""

    def function(ops, x):
        return x * 2 if len(x) == 1 else torch.cat([x[:1] * 2, x[1:] * 3])

    parts = [((slice(0, 1),), (slice(0, 1),)), ((slice(-1, None),), (slice(-1, None),))]
    x = operators.random(3, 2)
    workload = operators.operator(cpu, function, x, amount=1, parts=parts[:1])
    workload.verify(workload.run())
    workload = operators.operator(cpu, function, x, amount=1, parts=parts)
    with pytest.raises(WrongResult, match="relative error"):
        workload.verify(workload.run())


def test_unknown_peer(capsys):
    assert cli.main(["--peers", "abacus"]) == cli.EXIT_BAD_INPUT
    assert "abacus" in capsys.readouterr().err


def test_no_such_row(capsys):
    assert cli.main(["--peers", "cpu", "--only", "abacus"]) == cli.EXIT_BAD_INPUT
    assert "abacus" in capsys.readouterr().err


def test_absent_peer_says_why():
    if torch.cuda.is_available():
        pytest.skip("CUDA is here")
    with pytest.raises(Unavailable, match="CUDA"):
        PEERS["cuda"]()


def test_a_dead_worker_costs_one_row():
    first, second = (row.name for row in TINY if row.name.startswith("bmm"))
    peer = worker.Worker("cpu", timeout=0)
    try:
        assert "no answer within 0 s" in peer.run(first, "tiny", 64).failed
        peer.timeout = 60
        assert peer.run(second, "tiny", 64).value > 0
        peer._connection.send("no request")
        assert "ended with status 1" in peer.run(first, "tiny", 64).failed
        assert peer.run(second, "tiny", 64).value > 0
    finally:
        peer.stop()


def test_reference_is_float64():
    x = np.array([1e8, 1.0, -1e8], np.float32)
    assert operators.reference(lambda ops, x: ops.sum(x), [x]) == [1.0]
