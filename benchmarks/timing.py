"""How long something takes, with how much it varies."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

SAMPLES = 9
FEWEST_SAMPLES = 3
SAMPLE_SECONDS = 0.05
MOST_RUNS = 1000
# A GPU that was idle runs at a low clock at first: an H200, idle at 345 MHz, takes 0.3 s of work to
# reach its full speed. At most twice the budget.
WARM_UP_SECONDS = 0.5


@dataclass(frozen=True)
class Measurement:
    """Median and interquartile range."""

    median: float
    spread: float = 0.0

    @classmethod
    def of(cls, samples: list[float]) -> "Measurement":
        low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(middle, high - low)


def measure(
    run: Callable[[], object],
    synchronize: Callable[[], None],
    *,
    enqueue_only: bool = False,
    budget: float = 5.0,
) -> Measurement:
    """Seconds per `run`, which may return before its work is done.

    A sample repeats `run` until it is long against the clock and against one synchronization, which
    comes after the last repetition only, so that nothing inside the sample waits. With
    `enqueue_only` the clock stops before the synchronization, and a sample is a single run: the
    queue must be empty at its start, or the host would be measured waiting for room in it.
    """

    def sample(runs: int) -> float:
        synchronize()
        start = time.perf_counter()
        for _ in range(runs):
            run()
        if enqueue_only:
            elapsed = time.perf_counter() - start
            synchronize()
        else:
            synchronize()
            elapsed = time.perf_counter() - start
        return elapsed / runs

    # The first run compiles, the second fills pools; the third is a typical one, if at a low clock.
    sample(1)
    once = sample(1)
    if once < budget:
        once = sample(1)
    wanted = 1 if enqueue_only else math.ceil(SAMPLE_SECONDS / max(once, 1e-9))
    runs = min(wanted, MOST_RUNS)
    warm = time.perf_counter() + min(WARM_UP_SECONDS, 2 * budget)
    while time.perf_counter() < warm:
        sample(runs)
    count = max(FEWEST_SAMPLES, min(SAMPLES, int(budget / max(once * runs, 1e-9))))
    return Measurement.of([sample(runs) for _ in range(count)])
