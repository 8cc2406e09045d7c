"""Groups of a program's steps as one function, compiled, compared with what it gives in eager mode.

Both run on the device, from the same steps before the group. The CPU only makes the program."""

import collections
import inspect
import random
import re
import time
from dataclasses import replace

import torch

from ..conformance import runner
from . import compare, generate
from .blocks import Finding, Result
from .prelude import ramp
from .program import MODES, head, namespace

STEPS = 120  # of a block
LENGTH = 60  # steps of an episode
LONGEST = 12  # steps of a group
# Every other program is of what becomes one kernel, and reads most of what it made.
FUSED = (
    *("expressions", "factories", "pointwise", "reductions", "joining", "views", "copies"),
    "indexing",
)
RECENT = 0.7

# Not for a compiled function: Dynamo has no part in it, or leaves the function for each of them.
LEFT_OUT = re.compile(
    r"data\(|ramp\(|\.grad\b|backward\(|_hook\(|retain_grad|autograd|requires_grad|\.data\b|set_\(|"
    r"resize_|tolist|\.item\(|storage|synchronize|swap|with torch"
)


def run(block):
    """The Result of a block; `known` counts what other compilers do the same way."""
    runner.require_device()
    start = time.perf_counter()
    torch.webgpu.reset_fallbacks()
    kinds, findings, passed = collections.Counter(), [], collections.Counter()
    for episode in range(-(-block.steps // LENGTH)):
        place = f"{block}:{episode}"
        for steps, finding in groups_of(place, min(LENGTH, block.steps - episode * LENGTH)):
            kinds.update(step.kind for step in steps if step.compiled)
            if isinstance(finding, Finding):
                findings.append(finding)
            elif finding:
                passed[finding] += 1
        if findings and not runner.device_works():
            break
    return Result(
        kinds.total(),
        0,
        dict(kinds),
        findings,
        dict(passed),
        dict(torch.webgpu.fallbacks()),
        time.perf_counter() - start,
    )


def groups_of(place, length=LENGTH):
    """Yields (the steps up to a group's end, what is found of it) for each group of a program."""
    torch.manual_seed(0)
    lengths = random.Random(place)
    is_fused = lengths.random() < 0.5
    generator = generate.Generator(place, *((RECENT, FUSED) if is_fused else ()))
    before, group, size = [], [], lengths.randint(2, LONGEST)
    for index in range(length):
        step, error = generator.next()
        fits = error is None and not LEFT_OUT.search(step.text)
        if fits and step.kind != "del":
            group.append(step)
        ends = len(group) == size or index == length - 1 or (not fits and step.kind != "del")
        if group and ends:
            mode = lengths.choice(MODES)
            if mode == "backward" and any(step.changed for step in group):
                mode = "forward"  # leaves may not be changed
            steps = [*before, *(replace(step, compiled=mode) for step in group)]
            yield steps, finding_of(place, steps)
            before += group
            group, size = [], lengths.randint(2, LONGEST)
        if error is None and not fits:
            before.append(step)


def finding_of(place, steps):
    """A Finding; the reason why a difference is none of the device's; None if there is none."""
    difference = difference_of(steps, "webgpu", "inductor")
    if difference is None:
        return None
    for device, backend in (("webgpu", "aot_eager"), ("cpu", "aot_eager"), ("cpu", "inductor")):
        if difference_of(steps, device, backend) is not None:
            return f"{backend} differs from eager mode on {device} too"
    group = [step for step in steps if step.compiled]
    text = "; ".join(step.text for step in group)
    kinds = ", ".join(dict.fromkeys(step.kind for step in group))
    return Finding(place, kinds, text, difference, len(steps) - 1)


def find(place):
    """The steps and the Finding of an episode's first group that differs, or "no difference"."""
    runner.require_device()
    for steps, finding in groups_of(place):
        if isinstance(finding, Finding):
            return steps, finding
    return "no difference"


def evaluate(steps):
    """The Finding of a list of steps, or why there is none."""
    runner.require_device()
    try:
        finding = finding_of("", steps)
    except (SyntaxError, NameError):
        return "no program"
    return finding if isinstance(finding, Finding) else "no difference"


def difference_of(steps, device, backend):
    """What a compiled group does otherwise than in eager mode, on one device; None: nothing."""
    expected = outcome(steps, device, None)
    if isinstance(expected, Exception):
        return None
    actual = outcome(steps, device, backend)
    if isinstance(actual, Exception):
        return f"raises: {compare.describe(actual)}"
    group = [step for step in steps if step.compiled]
    rule = "sums" if any(step.rule in ("close", "sums") for step in group) else "equal"
    # Compiled code keeps more digits of halves between operators, so that float32 numbers that are
    # computed from these differ as much.
    dtypes = {x.dtype for x, _ in expected.values()}
    digits = next((half for half in (torch.bfloat16, torch.float16) if half in dtypes), None)
    rule = "sums" if digits else rule
    scale = max([step.scale for step in group] + [compare.largest(x) for x, _ in expected.values()])
    try:
        for name, (wanted, layout) in expected.items():
            got, other = actual[name]
            if other != layout:
                return f"{name} is {other}, in eager mode {layout}"
            compare.compare(name, got, wanted, rule, scale, digits)
    except compare.Difference as found:
        return str(found).replace("on the CPU", "in eager mode")
    return None


def outcome(steps, device, backend):
    """The variables that a group makes or writes, on the CPU, each with its layout; or the
    exception that it ends with."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    names = namespace(device)
    for step in steps:
        error = None if step.compiled else generate.run_step(step, names)
        if error is not None:  # where the CPU, which made the program, has none
            return error
    group = [step for step in steps if step.compiled]
    function, arguments, results = function_of(group, names)
    mode = group[0].compiled  # all of a group have the same
    given = {name: argument(names[name], mode) for name in arguments}
    if backend is not None:
        function = torch.compile(function, backend=backend, dynamic=mode == "dynamic")
    try:
        found = dict(zip(results, function(*given.values()), strict=True)) | given
        if mode == "backward":
            found |= gradients(found, given)
    except Exception as error:
        error.__traceback__ = None
        return error
    return {
        name: (x.detach().cpu(), compare.layout(x))
        for name, x in found.items()
        if isinstance(x, torch.Tensor)
    }


def argument(value, mode):
    if not isinstance(value, torch.Tensor):
        return value
    value = value.resolve_conj().resolve_neg()  # compilers lose these bits of arguments
    if mode != "backward":
        return value
    return value.detach().requires_grad_(value.is_floating_point())


def gradients(found, given):
    """Those of the given tensors, named after them."""
    leaves = {n: x for n, x in given.items() if isinstance(x, torch.Tensor) and x.requires_grad}
    ends = [x for n, x in found.items() if n not in given and getattr(x, "requires_grad", False)]
    ends = [x for x in ends if x.is_floating_point()]
    if not leaves or not ends:
        return {}
    weights = [ramp(x) for x in ends]
    of_leaves = torch.autograd.grad(ends, list(leaves.values()), weights, allow_unused=True)
    return {f"{name}.grad": x for name, x in zip(leaves, of_leaves, strict=True)}


def function_of(group, names):
    """The steps as a function of the variables that they read; and the names of its results."""
    text, arguments, made = text_of(group)
    scope = dict(names)
    exec(text, scope)
    return scope["function"], arguments, made


def text_of(group):
    made, arguments = [], []
    for step in group:
        made += [name for name in step.made if name not in made]
        arguments += sorted(n for n in step.names if n not in made and n not in arguments)
    lines = [f"def function({', '.join(arguments)}):", *("    " + s.text for s in group)]
    return "\n".join([*lines, f"    return [{', '.join(made)}]"]), arguments, made


def script(steps, difference):
    """A program to run by itself, which prints what a group gives in eager mode and compiled."""
    group = [step for step in steps if step.compiled]
    mode = group[0].compiled
    function, arguments, made = text_of(group)
    given = "".join(f"{name}, " for name in arguments)
    ready = f"{given} = (argument(x, {mode!r}) for x in ({given}))" if given else ""
    lines = [
        f"wanted = {[*made, *arguments]}",
        "torch.manual_seed(0)",
        *(step.text for step in steps if not step.compiled),
        *([ready] if ready else []),
        *function.splitlines(),
        f"run = torch.compile(function, dynamic={mode == 'dynamic'}) if is_compiled else function",
        f"found = [*run({given}), *({given})]",
        "for name, x in zip(wanted, found):",
        "    print(name, x.detach() if isinstance(x, torch.Tensor) else x)",
    ]
    if mode == "backward":
        lines += [
            "results = dict(zip(wanted, found))",
            f"leaves = {{name: results[name] for name in {arguments}}}",
            "print(gradients(results, leaves))",
        ]
    parts = (argument, gradients) if mode == "backward" else (argument,)
    return "\n".join(
        [
            *("# " + line for line in difference.splitlines()),
            head(),
            "",
            "",
            'device = torch.device("webgpu")',
            "",
            "",
            "\n\n\n".join(inspect.getsource(part).rstrip() for part in parts),
            "",
            "",
            "for is_compiled in (False, True):",
            '    print("compiled" if is_compiled else "eager mode")',
            *("    " + line for line in lines),
        ]
    )
