"""A small fixed part of `make fuzz`, and that the fuzzer finds what is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.fuzz import blocks, compiled, generate, known, shrink, soak
from tests.fuzz.program import Step, script
from torch_webgpu.inductor.overrides import WgslOverrides

ROOT = Path(__file__).resolve().parents[2]
EPISODES = 4


@pytest.fixture(autouse=True)
def quiet(silent_fallbacks):
    threads = torch.get_num_threads()
    blocks.quiet()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("episode", range(EPISODES))
def test_random_programs(episode):
    place = f"0:0:{episode}"
    for step, _, finding in blocks.steps_of(place):
        if finding and not known.reason_for(step, finding.difference):
            pytest.fail(f"{place}: {finding.text}\n{finding.difference}")


def test_a_seed_is_one_program():
    texts = [[step.text for step in generate.program("1:2:3", 40)] for _ in range(2)]
    assert texts[0] == texts[1]
    assert texts[0] != [step.text for step in generate.program("1:2:4", 40)]


@pytest.fixture
def wrong_kernel():
    """The device's flip leaves everything in its place."""

    def flip(keys, x, dims):
        return x.clone()

    library = torch.library.Library("aten", "IMPL")
    library.impl("flip", flip, "PrivateUse1", with_keyset=True, allow_override=True)
    yield
    library._destroy()


def test_a_wrong_kernel_is_found_and_shrunk(wrong_kernel):
    for episode in range(200):  # the first of this block begins with a flip
        place = f"3:182:{episode}"
        *_, (step, _, finding) = blocks.steps_of(place)
        if finding and "flip" in step.text:
            break
    else:
        pytest.fail("not found")
    steps = generate.program(place, finding.index + 1)

    def fails(candidate):
        result = blocks.evaluate(candidate)
        return getattr(result, "signature", None) == finding.signature

    short = shrink.shrink(steps, fails)
    assert len(short) <= 5
    assert "flip" in short[-1].text
    done = subprocess.run(
        [sys.executable, "-c", script(short, finding.difference)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("cpu\n") and "webgpu\n" in done.stdout


@pytest.mark.sampled("0")
@pytest.mark.parametrize("episode", range(2))
def test_compiled_programs(episode):
    place = f"0:0:{episode}"
    for _, finding in compiled.groups_of(place, compiled.LENGTH // 3):
        if isinstance(finding, blocks.Finding):
            pytest.fail(f"{place}: {finding.text}\n{finding.difference}")


def test_a_wrong_compiled_operator_is_found_and_shrunk(monkeypatch):
    """Compiled, the maximum of two numbers is the first."""
    monkeypatch.setattr(WgslOverrides, "maximum", lambda _, a, b: a)
    # Another run may have left the right programs in Inductor's cache.
    monkeypatch.setattr(torch._inductor.config, "force_disable_caches", True)
    a, b = (
        Step("data", f"v{k} = torch.arange(4, device=device) * {1 - 2 * k}.0", made=(f"v{k}",))
        for k in (0, 1)
    )
    group = [
        Step("neg", "v2 = -v0", made=("v2",), compiled="forward"),
        Step("maximum", "v3 = torch.maximum(v1, v0)", made=("v3",), compiled="forward"),
    ]
    finding = compiled.evaluate([a, b, *group])
    assert "v3 differs in 3 of 4 elements" in finding.difference

    def fails(candidate):
        is_group = any(step.compiled for step in candidate)
        return is_group and isinstance(compiled.evaluate(candidate), blocks.Finding)

    short = shrink.shrink([a, b, *group], fails)
    assert [step.text for step in short if step.compiled] == ["v2 = torch.maximum(v1, v0)"]
    text = compiled.script(short, finding.difference)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("eager mode\n") and "compiled\n" in done.stdout


def test_scripts_of_compiled_groups():
    steps = [
        Step("data", "v0 = data(1, (3, 2), torch.float32).to(device)", made=("v0",)),
        Step("exp", "v1 = v0.exp()", made=("v1",), compiled="backward"),
    ]
    text = compiled.script(steps, "the difference")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    eager, run = done.stdout.removeprefix("eager mode\n").split("compiled\n")
    assert eager == run and "v1 tensor" in run and "v0.grad" in run


def test_shrinking_keeps_the_lines_that_matter():
    texts = {
        "v0": "torch.ones(3)",
        "v1": "torch.zeros(3)",
        "v2": "v0 + 1",
        "v3": "v1 + 1",
        "v4": "v2 * 2",
        "v5": "v4 - 1",
    }
    steps = [Step("any", f"{name} = {text}", made=(name,)) for name, text in texts.items()]

    def fails(candidate):
        texts = " ".join(step.text for step in candidate)
        return "* 2" in texts and "ones" in texts

    short = shrink.shrink(steps, fails)
    assert [s.text for s in short] == ["v0 = torch.ones(3)", "v1 = v0 + 1", "v2 = v1 * 2"]


def test_the_command(tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz", "--steps", "60", "--seed", "0"),
            *("--jobs", "1", "--kinds", "--log", str(tmp_path / "log")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 differences" in done.stdout and "steps: " in done.stdout


def test_soak(monkeypatch, silent_fallbacks):
    """A round of training; memory is judged by `make soak`, over more steps."""
    monkeypatch.setattr(soak, "WARM_UP", 0)
    monkeypatch.setattr(soak, "LIMITS", {})
    assert soak.soak(minutes=5, steps=soak.ROUND, progress=False) == []
