import collections
import contextlib
import gc
import os
import subprocess
import sys

import pytest

# An op that silently ran on the CPU would make a test of the device worthless. Set before torch is
# imported: the backend reads it once.
os.environ.setdefault("TORCH_WEBGPU_FALLBACK", "error")
# Tests of programs that only say `import torch` run on machines with other accelerators too.
os.environ.setdefault("TORCH_WEBGPU_AUTOLOAD", "1")
# Most of the suite's time on llvmpipe is LLVM compiling shaders that run once on a few elements.
# Narrower vectors and no optimization passes take 0.4 of the time for that. Set to "256" and "" for
# llvmpipe as users have it.
os.environ.setdefault("LP_NATIVE_VECTOR_WIDTH", "128")
os.environ.setdefault("GALLIVM_PERF", "nopt")
# Two threads of OpenMP wait for each other in a loop. Beside another worker on two cores, that took
# half of the suite's time.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Cases that `sampled` does not take are long. Without `-m`, long tests are left out."""
    cases = collections.defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for test, found in cases.items():
        sample = found[0].get_closest_marker("sampled").args
        taken = [item for k, item in enumerate(found) if is_taken(item.callspec.id, k, sample)]
        for item in found:
            if item not in taken:
                item.add_marker(pytest.mark.long)
        # A case that has got another name would not run, unseen.
        is_whole = not any("[" in argument for argument in config.args)
        if is_whole and isinstance(sample[0], str) and len(taken) < len(sample):
            raise pytest.UsageError(f"{test} has not all of the cases {sample}")
    if config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def is_taken(case, number, sample):
    """Whether the marker `sampled` with these arguments takes a case: by name or by number."""
    if isinstance(sample[0], str):
        return case in sample
    step, first = (*sample, 0)[:2]
    return number % step == first


def pytest_collection_finish():
    """What is imported by now stays alive. Python's collector and exports, which go through all
    objects of the process, need not come by it in each test. Compilations allocate so much that the
    collector takes a twentieth of their time with its own thresholds."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


@pytest.fixture(autouse=True)
def seeded():
    """Random inputs are the same in every run: a failure can be repeated."""
    import torch

    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def guards_not_timed():
    """Dynamo times the guards of what it has compiled. It flushes the processor's caches before,
    which is a sixth of the time of a small compilation, and slows the other workers."""
    guards = sys.modules.get("torch._dynamo.guards")
    if hasattr(guards, "profile_guard_manager"):
        guards.profile_guard_manager = lambda *args: 0.0


@pytest.fixture(scope="module", params=["for this adapter", "for a GPU"])
def planned(request):
    """For modules whose kernels differ on software adapters, such as those of CI: what large GPUs
    run is tested, too."""
    from torch_webgpu import wgsl

    with contextlib.ExitStack() as stack:
        if request.param == "for a GPU":
            stack.enter_context(wgsl.target(limits={"workgroups_to_fill": 2048}))
        yield


@pytest.fixture
def silent_fallbacks():
    """Lets the CPU stand in, for tests of exactly that. Its value: the function that counts."""
    import torch

    mode = torch.webgpu.get_fallback_mode()
    torch.webgpu.set_fallback_mode("silent")
    torch.webgpu.reset_fallbacks()
    yield torch.webgpu.fallbacks
    torch.webgpu.set_fallback_mode(mode)
    torch.webgpu.reset_fallbacks()


@pytest.fixture
def warn_always():
    """Warnings that ATen gives once in a process are given each time."""
    import torch

    was = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(was)


@pytest.fixture
def run_python():
    """Runs a program in a new interpreter and returns the finished process."""

    def run(
        code: str, *, timeout: float = 120, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


@pytest.fixture
def check_python(run_python):
    """Like run_python, but the program must exit with 0. Returns what it printed."""

    def check(code: str, **options) -> str:
        process = run_python(code, **options)
        assert process.returncode == 0, process.stderr
        return process.stdout

    return check
