"""Writes random programs and what PyTorch computes: web/tests/files/torch/programs.json.

TORCH_PROGRAMS is how many there are (200), TORCH_PROGRAMS_SEED where they begin (0); with either,
the file is programs-SEED-COUNT.json. A program depends on its seed and its place only.
"""

import json
import os
import pathlib
import random
import sys
import warnings

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from programs import steps
from programs.model import Program, Rejected

OUT = pathlib.Path(__file__).parents[1] / "files" / "torch"
COUNT = int(os.environ.get("TORCH_PROGRAMS", "200"))
SEED = int(os.environ.get("TORCH_PROGRAMS_SEED", "0"))


def inputs(program: Program) -> None:
    """A few tensors that broadcast and multiply with each other."""
    rng = program.rng
    n, m, k = rng.randint(2, 5), rng.randint(2, 5), rng.randint(1, 4)
    shapes = [[n, m], [m, n], [m], [n, 1], [k, n, m], []]
    for shape in rng.sample(shapes, rng.randint(2, 4)):
        program.input(program.random(shape), program.gradients)
    if rng.random() < 0.3:
        program.input(program.random([2, 4, 5, 4]), program.gradients and rng.random() < 0.5)
    for dtype in rng.sample([torch.int32, torch.int64, torch.bool, torch.float16], 2):
        if not program.gradients or dtype != torch.float16:
            program.input(program.random(rng.choice(shapes), dtype), False)
    if program.special:
        values = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1.5, -2.5])
        program.input(values[torch.tensor([rng.randrange(7) for _ in range(m)])], False)


def attempt(rng: random.Random) -> dict | None:
    kind = rng.random()
    program = Program(rng, gradients=kind < 0.4, special=kind > 0.88)
    inputs(program)
    makers = [
        (w, make) for w, gradients, make in steps.MAKERS if gradients or not program.gradients
    ]
    weights, functions = zip(*makers, strict=True)
    wanted = rng.randint(5, 25 if program.gradients else 40)
    made = 0
    for _ in range(40 * wanted):
        if made == wanted:
            break
        try:
            if rng.random() < 0.02:
                step = steps.wrong(program)
                if step is None:
                    continue
                program.raises(step)
            else:
                step = rng.choices(functions, weights)[0](program)
                if step is None:
                    continue
                program.run(step)
        except Rejected:
            continue
        made += 1
    result = {"steps": program.record}
    if program.gradients:
        try:
            result["backward"] = program.differentiate()
        except (Rejected, RuntimeError):
            return None
        if result["backward"] is None:
            return None
    return result


def program(place: int) -> dict:
    """Program `place`, whatever the number of programs is."""
    for again in range(1000):
        made = attempt(random.Random(f"{SEED} {place} {again}"))
        if made is not None:
            return made
    raise RuntimeError(f"no program {place} after 1000 attempts")


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    plain = (COUNT, SEED) == (200, 0)
    name = "programs.json" if plain else f"programs-{SEED}-{COUNT}.json"
    made = [program(place) for place in range(COUNT)]
    (OUT / name).write_text(json.dumps(made, separators=(",", ":")))


if __name__ == "__main__":
    main()
