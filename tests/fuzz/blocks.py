"""A block is what a worker process runs at once: episodes, each a program of its own."""

import collections
import time
import warnings
from typing import NamedTuple

import torch

from ..conformance import runner
from . import compare, generate, known
from .program import namespace

DEVICE = "webgpu"
STEPS = 600  # of a block
LENGTH = 60  # steps of an episode
# Pipelines are kept for good: see CELLS_OF_A_PROCESS of tests/conformance.
BLOCKS_OF_A_PROCESS = 60


class Block(NamedTuple):
    seed: int
    number: int
    steps: int = STEPS

    def __str__(self):
        return f"{self.seed}:{self.number}"


class Finding(NamedTuple):
    place: str  # SEED:BLOCK:EPISODE, or SEED:BLOCK if its process was lost
    kind: str
    text: str
    difference: str
    index: int = 0  # of the step in its episode

    @property
    def signature(self):
        return signature(self.kind, self.difference)


class Result(NamedTuple):
    steps: int
    refused: int  # of them, where CPU and device raise
    kinds: dict
    findings: list
    known: dict
    fallbacks: dict
    seconds: float


def start_worker(log):
    runner.start_worker(log)
    quiet()


def quiet():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def run(block):
    runner.require_device()
    start = time.perf_counter()
    torch.webgpu.reset_fallbacks()
    kinds, refused, findings, passed = collections.Counter(), 0, [], collections.Counter()
    for episode in range(-(-block.steps // LENGTH)):
        length = min(LENGTH, block.steps - episode * LENGTH)
        place = f"{block}:{episode}"
        for step, error, finding in steps_of(place, length):
            if finding:
                reason = known.reason_for(step, finding.difference)
                if reason:
                    passed[reason] += 1
                else:
                    findings.append(finding)
            elif step.kind != "del":
                kinds[step.kind] += 1
                refused += error is not None
        if findings and not runner.device_works():
            break
    return Result(
        kinds.total(),
        refused,
        dict(kinds),
        findings,
        dict(passed),
        dict(torch.webgpu.fallbacks()),
        time.perf_counter() - start,
    )


def steps_of(place, length=LENGTH, thorough=False):
    """Yields (step, the CPU's error, Finding or None); ends at a finding."""
    torch.manual_seed(0)
    generator = generate.Generator(place)
    twin = compare.Twin(namespace(DEVICE), generator.model.names, thorough)
    for index in range(length):
        step, error = generator.next()
        difference = difference_of(twin, step, error)
        if difference:
            yield step, error, Finding(place, step.kind, step.text, difference, index)
            return
        yield step, error, None


def difference_of(twin, step, error):
    try:
        twin.run(step, error)
    except compare.Difference as found:
        return str(found)
    except Exception as found:  # of the GPU, raised where results are read
        return f"reading raises: {compare.describe(found)}"
    return None


def evaluate(steps):
    """The first Finding of a list of steps, compared thoroughly after each."""
    runner.require_device()
    torch.manual_seed(0)
    names = namespace("cpu")
    twin = compare.Twin(namespace(DEVICE), names, thorough=True)
    for index, step in enumerate(steps):
        try:
            error = generate.run_step(step, names)
            if isinstance(error, (NameError, SyntaxError)):
                return "no program"
            difference = difference_of(twin, step, error)
        except SyntaxError:
            return "no program"
        if difference and not known.reason_for(step, difference):
            return Finding("", step.kind, step.text, difference, index)
    return "no difference"


def find(place, length):
    """The finding of an episode, or "no difference"."""
    runner.require_device()
    for thorough in (False, True):
        for step, _, finding in steps_of(place, length, thorough):
            if finding is None or known.reason_for(step, finding.difference):
                continue
            if thorough or "that does not write" not in finding.difference:
                return finding
    return "no difference"


def signature(kind, difference):
    """What two findings of one cause have in common, most likely."""
    for word in ("raises", "memory beside", "was changed by", "shares its storage", ".grad"):
        if word in difference:
            return kind, word
    return kind, "differs in" if "differs in" in difference else "form"
