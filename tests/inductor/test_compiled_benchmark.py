"""Each program of benchmarks.compiled runs in every mode. Nothing is timed."""

import json

import pytest
import torch
from compiled import DEVICE

from benchmarks import compiled as benchmark
from benchmarks.models import ResNet50
from benchmarks.peers.torch_peer import TorchPeer
from benchmarks.programs import MODES, PROGRAMS, random
from benchmarks.text_models import GPT2, Encoder, QwenDecoder

TINY = {
    **{"n": 64, "rows": 8, "classes": 50, "width": 8, "vocabulary": 11},
    **{"batch": 4, "length": 4, "layers": 1, "blocks": 1, "side": 64},
}
# What takes long to compile; test_training has optimizers, and tests/models networks.
LONG = ("AdamW", "ResNet-50", "GPT-2")
# One of each kind in graphs, which the tests of graphs know better.
GRAPHED = ("chain of 10, f32", "cross entropy", "MLP step", "AdamW", "Qwen", "GPT-2")


def tiny(program):
    assert program.small.keys() == program.full.keys()
    return {name: TINY[name] for name in program.full}


def cases():
    for program in PROGRAMS:
        for mode in MODES:
            long = mode.compiles and program.name.startswith(LONG)
            if not long and (not mode.graphs or program.name.startswith(GRAPHED)):
                # Tiny or not, its words take long. tests/examples runs it as well.
                marks = pytest.mark.long if program.name.startswith("GPT-2") else ()
                yield pytest.param(program, mode, id=f"{program.name}-{mode.name}", marks=marks)


@pytest.fixture(scope="module")
def bench():
    torch.webgpu.reset_fallbacks()  # those of other tests are not the programs'
    bench = benchmark.Bench(TorchPeer(DEVICE), "small", 0.01)
    bench.sizes = tiny
    return bench


@pytest.mark.parametrize(("program", "mode"), cases())
def test_program(bench, program, mode):
    expected = benchmark.reference(program, tiny(program))
    figures = benchmark.Figures()
    actual = bench.prepared(mode, program, figures)()
    benchmark.require_close(actual, expected, program.tolerance)
    with pytest.raises(ArithmeticError, match="differs"):
        benchmark.require_close([2 * actual[0] + 1], expected[:1], program.tolerance)
    assert figures.compile_seconds.keys() == ({mode.name} if mode.compiles else set())


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def test_networks_are_those_that_they_are_named_for():
    with torch.device("meta"):
        assert parameters(ResNet50(64, 1000)) == 25_557_032
        # BERT's has an embedding for each of two segments more, and a pooling layer.
        assert parameters(Encoder(6, 30522)) == 22_713_216 - 2 * 384 - 384 * 385
        assert parameters(GPT2(12, 50257)) == 124_439_808
        assert parameters(QwenDecoder(24, 151936, 8)) == 494_032_768


def test_inputs_are_equal_on_every_device():
    numbers = random("cpu", 300, 1000)
    torch.testing.assert_close(random(DEVICE, 300, 1000).cpu(), numbers)
    assert 0.5 < numbers.std() < 1.5


def test_table_and_figures(tmp_path, capsys):
    path = tmp_path / "figures.json"
    options = ["--only", "row sum", "--scale", "small", "--seconds", "0.01", "--json", str(path)]
    assert benchmark.main(["--peers", "webgpu,cpu", *options]) == 0
    text = capsys.readouterr().out
    assert "| row sum " in text and "cpu eager" in text
    figures = json.loads(path.read_text())["rows"]["row sum"]["webgpu"]
    assert figures["us"].keys() == figures["copy"].keys() == {mode.name for mode in MODES}
    assert figures["dispatches"]["compiled"] == 1


def test_options_that_give_no_table(capsys):
    for options in (["--peers", "abacus"], ["--modes", "fast"], ["--only", "abacus"]):
        assert benchmark.main(options) == 2
        assert options[1] in capsys.readouterr().err
