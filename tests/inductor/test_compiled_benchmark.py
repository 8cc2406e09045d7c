"""Each program of benchmarks.compiled runs in both modes. Nothing is timed."""

import json

import pytest
import torch
from compiled import DEVICE

from benchmarks import compiled as benchmark

TINY = {"n": 64, "rows": 8, "classes": 50, "width": 8, "vocabulary": 11}
# 148 tensors take long to compile; test_training has optimizers.
PROGRAMS = [program for program in benchmark.PROGRAMS if not program.name.startswith("AdamW")]


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_program(program):
    sizes = {name: TINY[name] for name in program.full}
    assert program.small.keys() == program.full.keys()
    modes = [benchmark.eager, benchmark.compiled]
    expected, actual = (program.setup(mode, DEVICE, **sizes)() for mode in modes)
    benchmark.require_close(actual, expected, program.tolerance)
    with pytest.raises(ArithmeticError, match="differs"):
        benchmark.require_close([actual[0] + 1], expected[:1], program.tolerance)


def test_inputs_are_equal_on_every_device():
    numbers = benchmark.random("cpu", 300, 1000)
    torch.testing.assert_close(benchmark.random(DEVICE, 300, 1000).cpu(), numbers)
    assert 0.5 < numbers.std() < 1.5


def test_table_and_figures(tmp_path, capsys):
    path = tmp_path / "figures.json"
    options = ["--only", "row sum", "--scale", "small", "--seconds", "0.01", "--json", str(path)]
    assert benchmark.main(["--peers", "webgpu,nothing", *options]) == 0
    text = capsys.readouterr().out
    assert "| row sum " in text and "nothing: not here" in text
    figures = json.loads(path.read_text())["rows"]["row sum"]["webgpu"]
    assert figures["us"].keys() == figures["copy"].keys() == {"eager", "compiled"}
    assert figures["dispatches"]["compiled"] == 1
